# Real disks that are full or read-only, where one may mount them, and control groups with little memory.

here=$SCRATCH_ROOT/disks ROOM=$here/room
mkdir -p "$here/try"
fresh_room

in_sub() { # the command $1 with its output in sub/
  prepare "$1"
  mkdir -p sub
  COMMANDS[$1]=${COMMANDS[$1]/%out/sub/out}
  COMMANDS[$1]=${COMMANDS[$1]/output out/output sub/out}
  OUTPUTS[$1]=sub/out KEEPS[$1]=sub
}

# on_disk FAULT NAMED MOUNT: MOUNT makes sub/ (or model/) a disk, for each writer in turn
on_disk() {
  local fault=$1 named=$2 setup=$3 command
  is_wanted "$fault" || return 0
  for command in calibrate scales convert apply synth; do
    if ! $can_mount; then note "$fault" "$command" "not run"; continue; fi
    (
      in_sub "$command"
      prepare() { mkdir -p sub; }
      clean_up() { :; }
      attempt
    )
    umount sub model 2>/dev/null
    fresh_room
  done
}

can_mount=false
mount -t tmpfs -o size=64k none "$here/try" 2>/dev/null && umount "$here/try" && can_mount=true
for size in 4k 16k 64k 128k 192k 1m; do
  on_disk "a full disk (tmpfs)" "No space left on device|the disk of| free" "mount -t tmpfs -o size=$size none sub"
done
for inodes in 2 3 4 6 9; do
  on_disk "a disk without inodes (tmpfs)" "No space left on device" "mount -t tmpfs -o nr_inodes=$inodes none sub"
done
on_disk "a read-only disk for the output" "!Read-only file system" "mount -t tmpfs none sub; mount -o remount,ro sub"
on_disk "a read-only disk for the model" "nothing" "mount --bind model model; mount -o remount,ro,bind model"

# A control group of our own with a limit, or nothing.
make_group() { # make_group MEGABYTES
  local name=kvcal-faults-$$
  group=/sys/fs/cgroup/memory/$name
  if mkdir "$group" 2>/dev/null; then
    [[ -f $group/memory.limit_in_bytes ]] && echo "$1M" >"$group/memory.limit_in_bytes" && return
  fi
  group=/sys/fs/cgroup/$name
  if mkdir "$group" 2>/dev/null; then
    [[ -f $group/memory.max ]] && echo "$1M" >"$group/memory.max" && return
  fi
  rmdir "/sys/fs/cgroup/memory/$name" "/sys/fs/cgroup/$name" 2>/dev/null
  return 1
}

in_group() { # in_group COMMAND MEGABYTES
  local fault="a control group's memory limit" command=$1 named="memory" setup
  is_wanted "$fault" || return 0
  if ! make_group "$2"; then note "$fault" "$command" "not run"; return; fi
  setup="echo \$BASHPID >$group/cgroup.procs; fresh"
  attempt
  for _ in 1 2 3 4 5; do rmdir "$group" 2>/dev/null && break; sleep 0.1; done
}
for megabytes in 4 8 16 32 96 192 320; do
  for name in calibrate 'calibrate --state' convert apply sweep; do in_group "$name" $megabytes; done
done
