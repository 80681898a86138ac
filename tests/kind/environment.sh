#!/bin/sh
# An environment of its own for a container engine: processes, mounts, network and cgroups that end together, and leave
# nothing behind on the machine.
#
# environment.sh ROOT DIR NAME DAEMON SHARED...
#
# ROOT holds a Debian, which stays as it is: what is written goes to DIR, which also gets the file `pid`, of the first
# process inside. NAME is that of the cgroup, in each hierarchy of the machine. DAEMON runs inside. SHARED are folders of the
# machine that are seen under the same path, read-only, and DIR/shared, which can be written to. SIGTERM ends it all.
set -eu

hierarchies() {
  awk '$3 ~ /^cgroup2?$/ { print $2 }' /proc/mounts
}

# Ends what is left in the cgroups of a name, and removes them. Those that have been killed take a moment to end.
remove() {
  for _ in $(seq 300); do
    left=
    for hierarchy in $(hierarchies); do
      group=$hierarchy/$1
      [ -d "$group" ] || continue
      # runc may have been killed when it had stopped a container for a moment: in version 1 what is frozen does not even die.
      find "$group" -name freezer.state -exec sh -c 'for state; do echo THAWED > "$state"; done' sh {} + || :
      find "$group" -name cgroup.procs -exec cat {} + | sort -u | xargs -r kill -KILL || :
      find "$group" -depth -type d -exec rmdir {} + || :
      [ ! -d "$group" ] || left=$group
    done 2> /dev/null
    [ -n "$left" ] || return 0
    sleep 0.1
  done
  echo "cannot remove $left" >&2
}

if [ "${1:-}" != inside ]; then
  name=$3
  # What a run left that was killed itself.
  remove "$name"
  (
    for hierarchy in $(hierarchies); do
      mkdir "$hierarchy/$name"
      # A new cpuset has no CPUs, and takes no process before it has.
      for file in cpuset.cpus cpuset.mems; do
        [ ! -f "$hierarchy/tasks" ] || [ ! -f "$hierarchy/$file" ] || cat "$hierarchy/$file" > "$hierarchy/$name/$file"
      done
      echo 0 > "$hierarchy/$name/cgroup.procs"
    done
    exec setpriv --pdeathsig KILL unshare --mount --pid --net --ipc --uts --cgroup --fork --kill-child sh "$0" inside "$@"
  ) &
  environment=$!
  trap 'kill -KILL $environment || :' TERM
  wait $environment || :
  remove "$name"
  exit 0
fi

shift
root=$1 dir=$2 daemon=$4
shift 4
# Of the machine's /proc, which is still the one that is seen.
read -r pid _ < /proc/self/stat
mount --make-rprivate /
mkdir -p "$dir/upper" "$dir/work" "$dir/root" "$dir/docker" "$dir/containers" "$dir/shared"
mount -t overlay -o "lowerdir=$root,upperdir=$dir/upper,workdir=$dir/work" overlay "$dir/root"
cd "$dir/root"
# Not on the overlay: what engines keep lies on overlays of their own, whose layers cannot.
for store in docker containers; do
  mkdir -p "var/lib/$store"
  mount --bind "$dir/$store" "var/lib/$store"
done
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
for volatile in run tmp sys/fs/cgroup; do mount -t tmpfs tmpfs "$volatile"; done
for shared; do
  mkdir -p ".$shared"
  mount --bind -o ro "$shared" ".$shared"
done
mkdir -p ".$dir/shared" lib/modules
mount --bind "$dir/shared" ".$dir/shared"
if grep -qv '^0:' /proc/self/cgroup; then
  while IFS=: read -r id controllers _; do
    case $id:$controllers in
      0:*) folder=unified options=rw type=cgroup2 ;;
      *:name=*) folder=${controllers#name=} options=none,$controllers type=cgroup ;;
      *) folder=$controllers options=$controllers type=cgroup ;;
    esac
    mkdir "sys/fs/cgroup/$folder"
    mount -t $type -o "$options" cgroup "sys/fs/cgroup/$folder"
  done < /proc/self/cgroup
else
  umount sys/fs/cgroup
  mount -t cgroup2 cgroup sys/fs/cgroup
  # A group with processes hands no controllers on: they move into one below, as in
  # https://github.com/moby/moby/blob/v28.2.2/hack/dind
  mkdir sys/fs/cgroup/init
  while read -r member; do echo "$member" > sys/fs/cgroup/init/cgroup.procs || :; done < sys/fs/cgroup/cgroup.procs
  sed -e 's/ / +/g' -e 's/^/+/' < sys/fs/cgroup/cgroup.controllers > sys/fs/cgroup/cgroup.subtree_control
fi
echo "$pid" > "$dir/pid"
pivot_root . mnt
umount -l /mnt
mount --make-rshared /
hostname schedspan
ip link set lo up
# The shell stays, and waits for whoever loses their parent: that is the first process's duty.
$daemon &
wait
