#!/bin/sh
# Prints what the inventory reads of a machine, as a tree for resource-gatherer/fixtures.
#
# usage: scripts/capture-sysroot.sh [ROOT] > machine.tree
#
# Needs no root and nothing but a shell, cat, sed, dirname and readlink (busybox will do).
# Left out: the host's name, addresses and serial numbers.
# Servers of network file systems are renamed. Mount points and names of control groups stay as they
# are: read the tree before giving it away. ROOT is for a copy of a machine's /proc and /sys.
set -u
export LC_ALL=C
root="$(readlink -f "${1:-/}")"
root="${root%/}"
seen=' '
line_end='
'

# The path below the root with all links followed, in $real and $name; fails where there is none or
# where it was printed before.
find_new() {
  case "$1" in
    # The links in /proc lead to the process that follows them, and these parts of /sys have none.
    "$root"/proc/* | "$root"/sys/devices/system/* | "$root"/sys/kernel/*) real="$1" ;;
    *) real="$(readlink -f "$1")" ;;
  esac
  [ -n "$real" ] || return 1
  name="${real#"$root"/}"
  case "$seen" in *" $name "*) return 1 ;; esac
  seen="$seen$name "
}

# Prints files, each through the sed script $1.
filtered() {
  script="$1"
  shift
  for file in "$@"; do
    [ -f "$file" ] || continue
    [ -r "$file" ] || continue
    find_new "$file" || continue
    case "$script:$real" in
      # One line each, and hundreds of them: not worth a process.
      :"$root"/sys/devices/system/*) IFS= read -r text <"$real" || continue ;;
      # Some attributes can be opened but not read, the speed of a link that is down for instance.
      *) text="$(cat "$real" 2>/dev/null)" || continue ;;
    esac
    [ -z "$script" ] || text="$(printf '%s\n' "$text" | sed "$script")"
    case "$text" in
      *"$line_end"*) printf '%s =\n' "$name" && printf '%s\n' "$text" | sed 's/^/| /' ;;
      *) printf '%s = %s\n' "$name" "$text" ;;
    esac
  done
}

files() { filtered '' "$@"; }

# Prints links as they are.
links() {
  for link in "$@"; do
    [ -L "$link" ] || continue
    place="$(readlink -f "${link%/*}")"
    name="${place#"$root"/}/${link##*/}"
    case "$seen" in *" $name "*) continue ;; esac
    seen="$seen$name "
    printf '%s -> %s\n' "$name" "$(readlink "$link")"
  done
}

host() {
  printf 'proc/sys/kernel/hostname = captured\n'
  filtered '/^Mem\(Total\|Free\|Available\):/!d' "$root/proc/meminfo"
  # shellcheck disable=SC2016  # The dollar is sed's.
  filtered '/^$/,$d
    /^\(processor\|vendor_id\|model name\|flags\|Features\|CPU implementer\|CPU part\|cpu\|uarch\)[[:space:]]*:/!d' \
    "$root/proc/cpuinfo"
  printf 'proc/self/status =\n'
  sed -n 's/^\(Cpus_allowed_list\|Mems_allowed_list\):/| &/p' "$root/proc/self/status"
  # No server by name, and nothing that a file system on a network was told about it.
  filtered 's/lowerdir=[^,]*,//
    s/ - \([^ ]*\) \(\/\/\)[^ /]*\/[^ ]* .*/ - \1 \2server\/share rw/
    s/ - \([^ ]*\) [^ :]*:[^ ]* .*/ - \1 server:\/export rw/' "$root/proc/self/mountinfo"
  files "$root/proc/self/cgroup" "$root/proc/sys/kernel/numa_balancing"
  filtered '/^Node\|^ *managed /!d' "$root/proc/zoneinfo"
  files "$root/proc/loadavg" "$root/proc/pressure/memory"
}

processors() {
  cpu="$root/sys/devices/system/cpu"
  files "$cpu/online" "$cpu"/cpu[0-9]*/topology/thread_siblings_list \
    "$cpu"/cpu[0-9]*/cache/index[0-9]*/level "$cpu"/cpu[0-9]*/cache/index[0-9]*/type \
    "$cpu"/cpu[0-9]*/cache/index[0-9]*/size "$cpu"/cpu[0-9]*/cache/index[0-9]*/shared_cpu_list
}

memory() {
  node="$root/sys/devices/system/node"
  files "$node/online" "$node/has_generic_initiator" "$root"/proc/driver/nvidia/gpus/*/numa_status
  case "$(cat "$root/proc/iomem" 2>/dev/null)" in
    *'System RAM (NVIDIA)'*) printf 'proc/iomem = 0-0 : System RAM (NVIDIA)\n' ;;
  esac
  for directory in "$node"/node[0-9]*; do
    filtered '/ Mem\(Total\|Free\):/!d' "$directory/meminfo"
    files "$directory/cpulist" "$directory/distance" "$directory"/memory_side_cache/index*/size
    for class in access0 access1; do
      links "$directory/$class/initiators"/node[0-9]*
      files "$directory/$class/initiators"/*_latency "$directory/$class/initiators"/*_bandwidth
    done
  done
  files "$root"/sys/kernel/mm/mempolicy/weighted_interleave/* "$root/sys/kernel/mm/numa/demotion_enabled"
}

cxl_and_dax() {
  links "$root"/sys/bus/cxl/devices/* "$root"/sys/bus/dax/devices/*
  for device in "$root"/sys/bus/cxl/devices/*; do
    files "$device"/ram/size "$device"/size "$device"/target[0-9]* "$device"/cap_ram
    links "$device"/uport
  done
  for device in "$root"/sys/bus/dax/devices/*; do
    files "$device"/target_node "$device"/size
    links "$device"/driver
  done
}

storage() {
  links "$root"/sys/dev/block/* "$root"/sys/class/block/*
  for device in "$root"/sys/class/block/* "$root"/sys/dev/block/*; do
    # A partition has the queue of its disk.
    files "$device"/queue/rotational "$device"/../queue/rotational "$device"/partition \
      "$device"/loop/backing_file
  done
}

# The groups of this process and all above them.
control_groups() {
  sed -n 's/^0:://p; s/^[0-9]*:[^:]*memory[^:]*://p; s/^[0-9]*:[^:]*cpuset[^:]*://p' \
    "$root/proc/self/cgroup" 2>/dev/null | while read -r group; do
    for mount in "$root"/sys/fs/cgroup "$root"/sys/fs/cgroup/memory "$root"/sys/fs/cgroup/unified \
      "$root"/sys/fs/cgroup/cpuset; do
      [ -d "$mount" ] || continue
      level="$mount/$group"
      [ -d "$level" ] || level="$mount"
      while :; do
        files "$level"/memory.max "$level"/memory.high "$level"/memory.current \
          "$level"/memory.limit_in_bytes "$level"/memory.usage_in_bytes "$level"/memory.pressure
        filtered '/^\(total_\)\{0,1\}inactive_file /!d' "$level"/memory.stat
        files "$level"/cpuset.mems.effective "$level"/cpuset.effective_mems \
          "$level"/cpuset.cpus.effective "$level"/cpuset.effective_cpus
        [ "$(readlink -f "$level")" != "$(readlink -f "$mount")" ] || break
        level="$(dirname "$level")"
      done
    done
  done
}

printf '# Captured by scripts/capture-sysroot.sh, kernel %s.\n' \
  "$(cat "$root/proc/sys/kernel/osrelease" 2>/dev/null || echo unknown)"
host
control_groups
processors
memory
cxl_and_dax
storage
