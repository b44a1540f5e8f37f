#!/bin/sh
# Prints what the inventory reads of a machine, as a tree for resource-gatherer/fixtures.
#
# usage: scripts/capture-sysroot.sh [ROOT] > machine.tree
#
# Needs no root and nothing but a shell, cat, sed, dirname and readlink (busybox will do).
# Left out: the host's name, addresses, serial numbers and the DMI table, which is full of them.
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

# The first ancestors of a device that know their NUMA node.
numa_nodes_above() {
  for start in "$@"; do
    above="$(readlink -f "$start")" || continue
    while [ "${above#"$root"/sys/devices/}" != "$above" ]; do
      files "$above/numa_node"
      above="${above%/*}"
    done
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
  files "$cpu/online" "$cpu"/cpu[0-9]*/topology/physical_package_id \
    "$cpu"/cpu[0-9]*/topology/thread_siblings_list \
    "$cpu"/cpu[0-9]*/cache/index[0-9]*/level "$cpu"/cpu[0-9]*/cache/index[0-9]*/type \
    "$cpu"/cpu[0-9]*/cache/index[0-9]*/size "$cpu"/cpu[0-9]*/cache/index[0-9]*/shared_cpu_list
  for limit in cpuinfo_min_freq cpuinfo_max_freq base_frequency; do
    files "$cpu"/cpufreq/policy[0-9]*/"$limit"
  done
}

memory() {
  node="$root/sys/devices/system/node"
  files "$node/online"
  for directory in "$node"/node[0-9]*; do
    filtered '/ Mem\(Total\|Free\):/!d' "$directory/meminfo"
    files "$directory/cpulist" "$directory/distance" "$directory"/memory_side_cache/index*/size
    files "$directory"/hugepages/hugepages-*/nr_hugepages "$directory"/hugepages/hugepages-*/free_hugepages
    for class in access0 access1; do
      links "$directory/$class/initiators"/node[0-9]*
      files "$directory/$class/initiators"/*_latency "$directory/$class/initiators"/*_bandwidth
    done
  done
  tiers="$root/sys/devices/virtual/memory_tiering"
  files "$tiers"/memory_tier*/nodelist "$tiers"/memory_tier*/nodes
  files "$root"/sys/kernel/mm/mempolicy/weighted_interleave/* "$root/sys/kernel/mm/numa/demotion_enabled"
  for directory in "$root"/sys/devices/system/edac/mc/mc[0-9]*/dimm[0-9]* \
    "$root"/sys/devices/system/edac/mc/mc[0-9]*/rank[0-9]*; do
    files "$directory/size" "$directory/dimm_mem_type" "$directory/dimm_location" "$directory/dimm_label"
  done
}

cxl_and_dax() {
  links "$root"/sys/bus/cxl/devices/* "$root"/sys/bus/dax/devices/*
  for device in "$root"/sys/bus/cxl/devices/*; do
    files "$device"/ram/size "$device"/pmem/size "$device"/firmware_version "$device"/numa_node \
      "$device"/size "$device"/mode "$device"/commit "$device"/interleave_ways \
      "$device"/interleave_granularity "$device"/target[0-9]* "$device"/dpa_size "$device"/region \
      "$device"/cap_ram "$device"/cap_pmem "$device"/access[01]/*_latency \
      "$device"/access[01]/*_bandwidth
    links "$device"/uport
  done
  for device in "$root"/sys/bus/dax/devices/*; do
    files "$device"/target_node "$device"/numa_node "$device"/size "$device"/align
    links "$device"/driver
  done
}

storage() {
  links "$root"/sys/dev/block/* "$root"/sys/class/block/* "$root"/sys/class/nvme/* "$root"/sys/block/*/device
  for device in "$root"/sys/class/block/* "$root"/sys/dev/block/*; do
    # A partition has the queue of its disk.
    for queue in "$device"/queue "$device"/../queue; do
      files "$queue"/rotational "$queue"/logical_block_size "$queue"/physical_block_size \
        "$queue"/scheduler "$queue"/write_cache "$queue"/nr_requests
    done
    files "$device"/partition "$device"/loop/backing_file \
      "$device"/device/model
    links "$device"/slaves/* "$device"/device
    numa_nodes_above "$device" "$device"/slaves/*
    # Where a disk has several paths, its controllers stand beside it.
    beside="$(readlink -f "$device"/..)" || continue
    links "$beside"/nvme[0-9]*
    numa_nodes_above "$beside"/nvme[0-9]*
  done
  links "$root"/sys/class/nvme/*/device
  numa_nodes_above "$root"/sys/class/nvme/*
}

network() {
  links "$root"/sys/class/net/* "$root"/sys/class/infiniband/*
  for device in "$root"/sys/class/net/* "$root"/sys/class/infiniband/*; do
    files "$device"/operstate "$device"/speed "$device"/mtu "$device"/type \
      "$device"/ports/*/rate "$device"/ports/*/state "$device"/ports/*/link_layer
    links "$device"/device/driver "$device"/device
    numa_nodes_above "$device"
  done
  for device in "$root"/sys/bus/pci/devices/*; do
    case "$(cat "$device/class" 2>/dev/null)" in
      0x03* | 0x12* | 0x0502*)
        links "$device" "$device"/driver
        files "$device"/class "$device"/vendor "$device"/device "$device"/numa_node
        ;;
    esac
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
network
