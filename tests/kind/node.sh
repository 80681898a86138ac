#!/bin/sh
# Makes a kind node's file system of a Debian, as kind's own Dockerfile does with pulled parts:
# https://github.com/kubernetes-sigs/kind/blob/v0.33.0/images/base/Dockerfile
#
# node.sh ROOT DIR BASE VERSION OUT EXECUTABLE... -- IMAGE...
#
# ROOT holds the Debian, which stays as it is; BASE kind's images/base; OUT is the tar to write. The executables go to
# /usr/bin, the image archives into containerd. In mount and pid namespaces of its own, so that nothing of it stays.
set -eu

root=$1 dir=$2 base=$3 version=$4 out=$5
shift 5
mount --make-rprivate /
mkdir -p "$dir/upper" "$dir/work" "$dir/root"
mount -t overlay -o "lowerdir=$root,upperdir=$dir/upper,workdir=$dir/work" overlay "$dir/root"
node=$dir/root

cp -r "$base/files/." "$node"
chmod -R u=rwX,go=rX "$node/kind" "$node/etc/containerd" "$node/etc/systemd/system" "$node/etc/sysctl.d"
chmod 755 "$node"/kind/bin/* "$node"/usr/local/bin/*
while [ "$1" != -- ]; do
  install -m 755 "$1" "$node/usr/bin"
  shift
done
shift

units=$node/lib/systemd/system
rm -f "$units"/sysinit.target.wants/systemd-tmpfiles-setup.service "$units"/multi-user.target.wants/* \
  "$node"/etc/systemd/system/*.wants/* "$units"/local-fs.target.wants/* "$units"/sockets.target.wants/*udev* \
  "$units"/sockets.target.wants/*initctl* "$units"/basic.target.wants/*
echo ReadKMsg=no >> "$node/etc/systemd/journald.conf"
ln -sf /usr/lib/systemd/systemd "$node/sbin/init"
mkdir -p "$node/etc/kubernetes/manifests" "$node/opt/cni" "$node/kind/manifests"
ln -s /usr/lib/cni "$node/opt/cni/bin"
# Podman's network, which is none of a node's.
rm -rf "$node"/etc/cni/net.d/*
ln -s /usr/bin/containerd "$node/usr/local/bin/containerd"
echo "$version" > "$node/kind/version"
# kind installs it without looking whether there is one.
cat > "$node/kind/manifests/default-storage.yaml" <<'END'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
  annotations: { storageclass.kubernetes.io/is-default-class: "true" }
provisioner: kubernetes.io/no-provisioner
END
chroot "$node" systemctl enable kubelet.service containerd.service undo-mount-hacks.service
chroot "$node" systemctl mask systemd-binfmt.service
chroot "$node" ctr oci spec | chroot "$node" jq 'del(.process.rlimits)
  | .hooks.createContainer += [{ path: "/kind/bin/mount-product-files.sh" }]' > "$node/etc/containerd/cri-base.json"
# A machine without CAP_SYS_RESOURCE makes no process less likely to be killed.
sed -i -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' \
  -e 's|sandbox_image = .*|sandbox_image = "schedspan.test/pause:3.10.2"|' "$node/etc/containerd/config.toml"

mount -t proc proc "$node/proc"
mount -t tmpfs tmpfs "$node/run"
chroot "$node" containerd &
containerd=$!
until chroot "$node" ctr version > "$node/run/version" 2>&1; do
  kill -0 $containerd
  sleep 0.2
done
for image; do
  cp "$image" "$node/run/image.tar"
  chroot "$node" ctr --namespace k8s.io images import --no-unpack /run/image.tar
done
kill $containerd
wait $containerd || :
umount "$node/run" "$node/proc"
# Engines are for the machine's side.
tar --directory "$node" --create --file "$out" --one-file-system --sort=name \
  --exclude=./usr/bin/docker --exclude=./usr/bin/podman --exclude=./usr/sbin/dockerd --exclude=./usr/lib/podman .
