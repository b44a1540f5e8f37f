#!/usr/bin/env bash
# Runs the tests behind the feature numa_tests in machines with several NUMA nodes.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$here/../.."

# Runs the test targets $2... in a machine of topology $1.
run_tests() {
  local topology="$1"
  shift
  printf 'numa-machine: topology %s\n' "$topology" >&2
  CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$here/run.sh --topology $topology --" \
    cargo test --package tierfeed-numa-memory --features numa_tests "$@"
}

"$here/setup.sh"
run_tests hmat --lib --test regions --test denied
# Not the tests inside the library: one fills the far node, and QEMU traps every access to a CXL device.
run_tests cxl --test regions --test denied
