#!/bin/busybox sh
# All that runs in the machine: a scheduler in the cgroup of a static Pod, and schedspan beside it.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t cgroup2 none /sys/fs/cgroup
mount -t securityfs none /sys/kernel/security
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
# As the kubelet makes it with systemd. This cgroup alone makes schedspan trace the scheduler.
slices=kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f8a3c5d9e2b41708c6d5e4f3a2b1c0d.slice
mkdir -p /sys/fs/cgroup/$slices/container.scope
sh -c 'echo $$ > "$0"; exec kube-scheduler "$@"' /sys/fs/cgroup/$slices/container.scope/cgroup.procs "$@" &
export SCHEDSPAN_TRUST=static-pods
# Sets the clock to the seconds since 1970 that a client sends.
nc -ll -p 9099 -e sh -c 'read seconds; date -s "@$seconds"' &
# Stricter than any level of the kernel itself: CAP_PERFMON suffices.
echo 3 > /proc/sys/kernel/perf_event_paranoid
# Until it listens (on 10259) it needs all of an emulated CPU, and what reads its executable waits too long.
until grep -q ':2813 .* 0A ' /proc/net/tcp6; do sleep 1; done
schedspan doctor
echo "doctor ended with $?"
# In emulation, what tracing costs is no measure of anything.
schedspan run --budget=100% --metrics-listen 0.0.0.0:9090
echo "schedspan ended with $?"
poweroff -f
