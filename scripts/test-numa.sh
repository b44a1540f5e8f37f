#!/usr/bin/env bash
# Runs the tests that need several memory nodes, in one machine for each topology.
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
readonly machine_timeout=900 program_timeout=300
readonly packages=(
  --package tierfeed-numa-memory --package tierfeed-resource-gatherer --package tierfeed
)

topologies=() filter=()
while [ $# -gt 0 ]; do
  case "$1" in
    --) shift && filter=("$@") && break ;;
    *) topologies+=("$1") && shift ;;
  esac
done
[ "${#topologies[@]}" -gt 0 ] || topologies=(hmat cxl cxl-generic-port)

say() { printf 'test-numa: %s\n' "$*" >&2; }

scripts/numa-machine/setup.sh
work="$(mktemp -d)"
readonly work root="$work/root" suites="$work/suites"
trap 'rm -rf "$work"' EXIT
# Else the loop below would take an interrupted machine for a failed one, and go on.
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# A line for each program that cargo built: test or not, package, target, its folder, its path.
of_packages() {
  cargo "$@" "${packages[@]}" --features numa_tests --message-format json-render-diagnostics
}
built="$({
  of_packages test --no-run --test numa_machine --test regions --test shelves --test denied \
    --test reserved
  of_packages build --example trainer
} | python3 scripts/numa-machine/programs.py | sort)"

# The script that runs every suite in the machine.
{
  echo '#!/bin/sh'
  echo 'failed='
} >"$suites"
while IFS=$'\t' read -r kind package target folder program; do
  mkdir -p "$root$folder" "$root$(dirname "$program")"
  strip -o "$root$program" "$program"
  chmod +x "$root$program"
  [ "$kind" = test ] || continue
  {
    printf 'echo "test-numa: %s: %s"\n' "$package" "$target"
    printf 'cd %q && timeout -s KILL %s %q --test-threads=1' "$folder" "$program_timeout" "$program"
    [ "${#filter[@]}" -eq 0 ] || printf ' %q' "${filter[@]}"
    printf ' || failed="%s %s/%s"\n' "\$failed" "$package" "$target"
  } >>"$suites"
done <<<"$built"
cat >>"$suites" <<'END'
[ -z "$failed" ] && exit 0
echo "test-numa: failed:$failed"
exit 1
END
chmod +x "$suites"
mkdir -p "$root${CARGO_TARGET_DIR:-$PWD/target}/tmp"

failed=()
for topology in "${topologies[@]}"; do
  say "machine $topology"
  began=$SECONDS
  scripts/numa-machine/run.sh --topology "$topology" --timeout "$machine_timeout" --root "$root" \
    -- "$suites" || failed+=("$topology")
  say "machine $topology: $((SECONDS - began)) s"
done

if [ "${#failed[@]}" -gt 0 ]; then
  say "failed: ${failed[*]}"
  exit 1
fi
say "all machines passed"
