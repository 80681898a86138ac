#!/bin/busybox sh
# All that runs in the machine: a scheduler, and schedspan beside it.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
echo "running Linux $(uname -r)"

# Some need others: in the last round all that they need is there.
for round in /modules/*; do
    for module in /modules/*; do insmod "$module" 2>/dev/null; done
done
ip link set lo up
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2

# Its arguments become the script's own.
. /etc/environment
kube-scheduler "$@" &
until pidof kube-scheduler > /dev/null; do sleep 1; done
schedspan doctor
echo "doctor ended with $?"
schedspan run --metrics-listen 0.0.0.0:9090
echo "schedspan ended with $?"
poweroff -f
