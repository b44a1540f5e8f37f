#!/usr/bin/env bash
# Runs what is too long for the tests: models of the ring, permutations where PyTorch's releases part,
# benches with their floors, live runs under random faults, and fuzzing.
#
# usage: stress.sh short|long
#
# short is what CI does: live runs under faults and benches, for some minutes, with the programs that are
# built anyway; long is for a night. A failing part hides none after it; the
# exit status tells whether all passed. A bench that cannot tell on this machine (code 3) is counted.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
: "${TIERFEED_BIN:?is not set: start this through \`make stress\`}"

readonly dose=${1:-short}
case $dose in
  short) minutes=1 ;;
  long) minutes=10 ;;
  *) echo 'usage: stress.sh short|long' >&2 && exit 2 ;;
esac

failed=() inconclusive=() parts=0
part() {
  local name=$1 status=0
  shift
  printf '\nstress: %s: %s\n' "$name" "$*" >&2
  parts=$((parts + 1))
  "$@" || status=$?
  case $status in
    0) ;;
    3) inconclusive+=("$name") ;;
    *) failed+=("$name") ;;
  esac
}
bench() {
  local name=$1
  shift
  part "bench $name" "$TIERFEED_BIN-bench" "$name" "$@"
}

# Another seed each time; a violation is printed with the seed that plays it again.
bench chaos --minutes "$minutes"
if [ "$dose" = short ]; then
  # Only what needs no build of its own.
  bench policies
  bench dlcache --patterns quick
  bench agents
else
  bench chaos --nodes 4 --minutes 6
  bench chaos --samples images --minutes 3
  part models scripts/model.sh long
  part 'leases of TensorFlow' env TIERFEED_LEASED_BATCHES=100000 scripts/test-frameworks.sh -k leave_no_lease
  part 'large permutations' cargo nextest run -p tierfeed-core --features large_vectors large
  part criterion cargo bench --manifest-path benchmarks/Cargo.toml -p tierfeed-benchmarks
  bench policies
  bench handoff --python .venv/bin/python
  bench copy
  bench dlcache
  bench index
  bench limits
  bench idle
  bench agents
  bench hogged
  part fuzz scripts/fuzz.sh
fi

[ "${#inconclusive[@]}" -eq 0 ] ||
  printf '\nstress: inconclusive here: %s\n' "$(IFS=,; echo "${inconclusive[*]}")" >&2
if [ "${#failed[@]}" -gt 0 ]; then
  printf '\nstress: failed: %s\n' "$(IFS=,; echo "${failed[*]}")" >&2
  exit 1
fi
printf '\nstress: all %s parts passed, %s of them inconclusive\n' "$parts" "${#inconclusive[@]}" >&2
