#!/usr/bin/env bash
# Runs a program in a machine with several NUMA nodes and passes its output and exit code through.
#
# usage: run.sh [--topology hmat|cxl|cxl-generic-port] [--node-mib N] [--timeout SECONDS] [--console]
#               [--root DIR] -- PROGRAM [ARGUMENTS...]
#
# PROGRAM may be a directory: it becomes the working directory, and the first argument the command.
# The content of DIR appears below / in the machine. --console prints the guest's kernel messages to
# stderr. Exit codes of its own: 2 wrong usage, 124 timeout, 125 the machine did not boot.
# The machine always ends with this script.
# shellcheck disable=SC2054  # The commas are QEMU's.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
readonly here
readonly home="${NUMA_MACHINE_DIR:-$here/../../target/numa-machine}"
readonly usage_lines=9

topology=hmat node_mib=512 timeout=120 console='' root=''

usage() {
  sed -n "2,${usage_lines}s/^# \{0,1\}//p" "${BASH_SOURCE[0]}" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case "$1" in
    --topology) topology="${2:?}" && shift 2 ;;
    --node-mib) node_mib="${2:?}" && shift 2 ;;
    --timeout) timeout="${2:?}" && shift 2 ;;
    --root) root="${2:?}" && shift 2 ;;
    --console) console=1 && shift ;;
    --) shift && break ;;
    -*) usage ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || usage
case "$topology" in hmat | cxl | cxl-generic-port) ;; *) usage ;; esac
"$here/setup.sh"

work="$(mktemp -d)"
readonly work
machine=''
# shellcheck disable=SC2317,SC2329  # The trap calls it.
stop() {
  [ -z "$machine" ] || { kill "$machine" && wait "$machine"; } 2>/dev/null || true
  rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The program, the command line and the topology: a second archive after the first.
pack_payload() {
  local program="$1" files="$work/files"
  shift
  mkdir -p "$files"/{payload,numa-machine}
  [ -z "$root" ] || cp -a "$root/." "$files/"
  if [ -d "$program" ]; then
    cp -a "$program/." "$files/payload/"
    [ $# -gt 0 ] || usage
  else
    cp -L "$program" "$files/payload/"
    set -- "./$(basename "$program")" "$@"
  fi
  find "$files" -type f -perm -u+x -exec "$here/libraries.sh" "$files" {} +
  printf '%q ' "$@" >"$files/numa-machine/command"
  echo "$topology" >"$files/numa-machine/topology"
  install -m 755 "$here/guest/init" "$files/init"
  install -m 755 "$here/guest/cxl.sh" "$files/numa-machine/cxl.sh"
  (cd "$files" && find . | cpio -o -H newc --quiet --owner=+0:+0) >"$work/payload"
  cat "$home/initramfs" "$work/payload" >"$work/initramfs"
  rm -rf "$files" "$work/payload"
}

boot="console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable rdinit=/init"
arguments=(
  -accel tcg,thread=multi -smp 2,sockets=2,cores=1,threads=1
  -nodefaults -no-user-config -display none -no-reboot
  -L "$home/qemu/usr/share/seabios" -L "$home/qemu/usr/share/qemu"
  -kernel "$home/vmlinux" -initrd "$work/initramfs"
  -serial "file:$work/console" -serial "file:$work/output"
  -object "memory-backend-ram,id=memory0,size=${node_mib}M"
  -object "memory-backend-ram,id=memory1,size=${node_mib}M"
  -numa node,nodeid=0,memdev=memory0 -numa node,nodeid=1,memdev=memory1
  -numa cpu,node-id=0,socket-id=0 -numa cpu,node-id=1,socket-id=1
  -numa dist,src=0,dst=1,val=20
)

# The firmware's figures of the path from a node's CPUs to a node's memory: latency in ns, bytes per s.
link() {
  local way="initiator=$1,target=$2,hierarchy=memory"
  arguments+=(-numa "hmat-lb,$way,data-type=access-latency,latency=$3"
    -numa "hmat-lb,$way,data-type=access-bandwidth,bandwidth=$4")
}

# QEMU traps every access to it, so filling it is slow.
cxl_device() {
  arguments+=(
    -object memory-backend-ram,id=device0,share=on,size=512M
    -device pxb-cxl,bus_nr=12,bus=pcie.0,id=bridge0
    -device cxl-rp,port=0,bus=bridge0,id=port0,chassis=0,slot=2
    -device cxl-type3,bus=port0,volatile-memdev=device0,id=memdev0
    -M cxl-fmw.0.targets.0=bridge0,cxl-fmw.0.size=4G)
}

case "$topology" in
  hmat)
    arguments+=(-machine q35,hmat=on -cpu max -m "$((3 * node_mib))"
      -object "memory-backend-ram,id=memory2,size=${node_mib}M"
      -numa node,nodeid=2,memdev=memory2,initiator=0
      -numa dist,src=0,dst=2,val=30 -numa dist,src=1,dst=2,val=40) ;;
  cxl | cxl-generic-port)
    # The driver believes that a hypervisor cannot flush caches, and refuses the device. Without fast
    # string instructions the kernel clears pages by words, not bytes: five times fewer traps.
    arguments+=(-machine q35,hmat=on,cxl=on -cpu max,-hypervisor,-erms,-fsrm
      -m "$((2 * node_mib)),maxmem=8G,slots=4") ;;
esac
link 0 0 100 80G && link 0 1 150 40G && link 1 0 150 40G && link 1 1 100 80G
case "$topology" in
  hmat) link 0 2 300 20G && link 1 2 400 15G ;;
  cxl)
    cxl_device
    boot+=" memhp_default_state=online_movable" ;;
  cxl-generic-port)
    cxl_device
    arguments+=(-numa node,nodeid=2 -numa dist,src=0,dst=2,val=25 -numa dist,src=1,dst=2,val=28
      -object acpi-generic-port,id=way0,pci-bus=bridge0,node=2)
    link 0 2 200 30G && link 1 2 260 25G ;;
esac

arguments+=(-append "$boot")

pack_payload "$@"
: >"$work/output"
# Also if this script is killed: then the first setpriv ends timeout, the second QEMU.
setpriv --pdeathsig TERM timeout --kill-after=5 "$timeout" \
  setpriv --pdeathsig KILL "$home/qemu/usr/bin/qemu-system-x86_64" "${arguments[@]}" \
  2>"$work/errors" &
machine=$!
tail --quiet --lines=+1 --follow --sleep-interval=0.1 --pid="$machine" "$work/output" &
shown=$!
ended=0
wait "$machine" || ended=$?
machine=''
wait "$shown" || true
[ -z "$console" ] || cat "$work/console" "$work/errors" >&2
[ "$ended" -ne 124 ] || { echo "numa-machine: not done within $timeout s" >&2 && exit 124; }
code="$(sed -n 's/.*NUMA-MACHINE-EXIT \([0-9]*\).*/\1/p' "$work/console" 2>/dev/null || true)"
[ -z "$code" ] || exit "$code"
tail -n 20 "$work/console" "$work/errors" >&2 || true
exit 125
