#!/usr/bin/env bash
# Runs the tests that need several memory nodes, in one machine for each topology, and those of control
# groups of version 2 in one more, `groups`.
#
# usage: test-numa.sh [TOPOLOGY...] [-- TEST...]     all topologies, all tests
#
# Programs lie in the machine where cargo built them, without debugging symbols, so that paths which
# were compiled in hold. A failing suite or machine hides none after it; the exit status tells
# whether all passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Only against a hang, and many times what an idle host takes: seconds for one machine with all its
# programs, and for one of these, so that it hides none after it.
readonly machine_timeout=900 program_timeout=450

topologies=() filter=()
while [ $# -gt 0 ]; do
  case "$1" in
    --) shift && filter=("$@") && break ;;
    *) topologies+=("$1") && shift ;;
  esac
done
[ "${#topologies[@]}" -gt 0 ] || topologies=(hmat cxl cxl-generic-port groups)

say() { printf 'test-numa: %s\n' "$*" >&2; }

verification/numa-machine/setup.sh
work="$(mktemp -d)"
readonly work root="$work/root" suites="$work/suites" discovery="$work/discovery" groups="$work/groups"
trap 'rm -rf "$work"' EXIT
# Else the loop below would take an interrupted machine for a failed one, and go on.
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# All tests, as `make test` builds them, so that it is done once. A line for each program: test or not,
# the folder of the package, the target, the path.
built="$(cargo build --workspace --lib --bins --examples --tests \
  --message-format json-render-diagnostics | python3 verification/numa-machine/programs.py | sort)"

# The scripts that run suites in a machine: the one with all that needs several memory nodes, the one with
# what finds and measures them, for a second way in which a device may be described, and the one with what
# needs control groups of version 2, which a host may lack. Whatever a test wants is there, but for a machine
# of one node.
for script in "$suites" "$discovery" "$groups"; do
  printf '%s\n' '#!/bin/sh' 'failed=' 'export TIERFEED_REQUIRE=-one-node' >"$script"
done

# suite SCRIPT PACKAGE TARGET FOLDER PROGRAM [FILTER...]
suite() {
  local script=$1 package=$2 target=$3 folder=$4 program=$5
  shift 5
  {
    printf 'echo "test-numa: %s: %s"\n' "$package" "$target"
    printf 'cd %q && timeout -s KILL %s %q --test-threads=1' "$folder" "$program_timeout" "$program"
    [ $# -eq 0 ] || printf ' %q' "$@"
    printf ' || failed="%s %s/%s"\n' "\$failed" "$package" "$target"
  } >>"$script"
}
while IFS=$'\t' read -r kind package target folder program; do
  case "$kind $package $target" in
    # Without the test that wants a disk, which the machine does not have: its group would pay for it.
    'test cli end_to_end')
      suite "$groups" "$package" "$target" "$folder" "$program" pressure comes_back_to_a_small_group ;;
    # Unit tests that say they need several nodes.
    'test numa-memory tierfeed_numa_memory')
      suite "$suites" "$package" "$target" "$folder" "$program" --ignored "${filter[@]}" ;;
    'test '*' numa_machine' | 'test numa-memory regions' | 'test numa-memory shared_pool' | \
      'test numa-memory denied' | 'test numa-memory reserved')
      suite "$suites" "$package" "$target" "$folder" "$program" "${filter[@]}"
      [ "$package" = cli ] || suite "$discovery" "$package" "$target" "$folder" "$program" "${filter[@]}" ;;
    'program cli tierfeed' | 'program cli trainer') ;;
    *) continue ;;
  esac
  mkdir -p "$root$folder" "$root$(dirname "$program")"
  strip -o "$root$program" "$program"
  chmod +x "$root$program"
done <<<"$built"
for script in "$suites" "$discovery" "$groups"; do
  cat >>"$script" <<'END'
[ -z "$failed" ] && exit 0
echo "test-numa: failed:$failed"
exit 1
END
  chmod +x "$script"
done
mkdir -p "$root${CARGO_TARGET_DIR:-$PWD/target}/tmp"

boot() {
  local script=$1
  shift
  verification/numa-machine/run.sh "$@" --timeout "$machine_timeout" --root "$root" -- "$script"
}

# In the gate what failed is tried once more, and named as flaky if it passes then: processors in
# software measure tiers with noise.
again() {
  local name=$1
  shift
  [ -n "${CI:-}" ] || return
  say "machine $name: once more"
  boot "$@" && say "FLAKY: machine $name passed on the second try"
}

failed=()
# machine NAME SCRIPT OPTIONS...
machine() {
  local name=$1 script=$2 began=$SECONDS
  shift 2
  say "machine $name"
  boot "$script" "$@" || again "$name" "$script" "$@" || failed+=("$name")
  say "machine $name: $((SECONDS - began)) s"
}
for topology in "${topologies[@]}"; do
  # More than the default, so that the probe has room beside the programs, which lie in memory too.
  case $topology in
    # The tests fill a group of 1 GiB.
    groups) machine groups "$groups" --topology hmat --node-mib 1024 ;;
    cxl-generic-port) machine "$topology" "$discovery" --topology "$topology" --node-mib 640 ;;
    *) machine "$topology" "$suites" --topology "$topology" --node-mib 640 ;;
  esac
done

if [ "${#failed[@]}" -gt 0 ]; then
  say "failed: ${failed[*]}"
  exit 1
fi
say "all machines passed"
