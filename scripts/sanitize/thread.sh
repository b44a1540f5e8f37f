#!/usr/bin/env bash
# Runs the tests of the data plane under ThreadSanitizer: memory, files, fetchers, tiers, hand-off. Its last
# line, and only that, goes to the standard output.
#
# The standard library is compiled with the sanitizer, from its sources: of the one that comes compiled, it
# would see neither the locks nor the fences that free an `Arc`, and would report what they keep apart. The
# compiler is the stable one, told to take the options that it has for this.
#
# TIERFEED_SANITIZE_PACKAGES   what is tested (tierfeed-numa-memory tierfeed-file-io tierfeed-dataset tierfeed-handoff tierfeed-prefetcher)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${CARGO_TARGET_DIR:?is not set: start this through \`make sanitize\`}"

export CARGO_TARGET_DIR=$CARGO_TARGET_DIR/thread-sanitizer
host=$(rustc -vV | sed -n 's/^host: //p')
readonly host
read -ra packages <<<"${TIERFEED_SANITIZE_PACKAGES:-tierfeed-numa-memory tierfeed-file-io tierfeed-dataset tierfeed-handoff tierfeed-prefetcher}"

# The tests of each package; what is left out needs a machine of its own (`numa_machine`, `reserved`), or
# traces its own system calls, which the sanitizer makes too (`system_faults`).
declare -rA targets=(
  [tierfeed-numa-memory]='--lib --test copies --test denied --test regions --test shared_pool'
  [tierfeed-file-io]='--lib --test queue --test reads'
  [tierfeed-dataset]='--lib read::'
  [tierfeed-handoff]='--lib'
  [tierfeed-prefetcher]='--lib --test data_plane --test formats'
)
readonly skipped=(
  # Threads race for bytes on purpose, as a trainer and the agent may: what is promised there is not that
  # they do not, but that the sum tells.
  --skip bytes_that_change_meanwhile_are_the_same_in_the_sum_and_in_the_copy
  # Under the sanitizer `mlock` does nothing and succeeds.
  --skip locked_memory_is_counted_as_locked_until_it_is_dropped
  --skip memory_that_may_not_be_locked_stays_usable
  # Rates are measured, in turns that are given up after a second.
  --skip a_trial_names_both_rates
  # Compares gigabytes one byte at a time, on one thread: more than a quarter of an hour.
  --skip what_was_written_last_is_read_whatever_went_out_in_between
)

say() { printf 'sanitize: threads: %s\n' "$*" >&2; }

export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=thread
# A test wants to see a process die of SIGBUS, which the sanitizer would turn into a report.
export TSAN_OPTIONS="history_size=4 handle_sigbus=0 suppressions=$PWD/scripts/sanitize/thread.supp"
# Some tests panic a thousand times on purpose, and a backtrace takes long under the sanitizer.
export RUST_BACKTRACE=0
test_with() { cargo test --quiet -Zbuild-std --target "$host" "$@"; }

output=$(mktemp)
trap 'rm -f "$output"' EXIT

say 'a race on purpose must be found'
if test_with -p tierfeed-numa-memory --test race -- --ignored >"$output" 2>&1; then
  say 'it was not: the sanitizer sees nothing'
  exit 1
fi
grep -q 'WARNING: ThreadSanitizer: data race' "$output" || {
  cat "$output" >&2
  exit 1
}
passed=0
for package in "${packages[@]}"; do
  read -ra of_package <<<"${targets[$package]}"
  # One at a time: some look for what is theirs by its name in the process.
  test_with -p "$package" "${of_package[@]}" -- --test-threads=1 "${skipped[@]}" 2>&1 | tee "$output" >&2
  counted=$(awk '/^test result: ok/ { sum += $4 } END { print sum + 0 }' "$output")
  say "$package: $counted tests passed"
  passed=$((passed + counted))
done
echo "threads: no race in $passed tests of ${packages[*]}; the one on purpose was found"
