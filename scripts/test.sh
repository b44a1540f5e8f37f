#!/usr/bin/env bash
# Runs every test: Rust, the examples in the documentation, the Python package, the demo. Those of several nodes
# are in `make test-cluster`.
#
# A failing suite does not hide the ones after it; the exit status tells whether all passed. Each
# test has a limit of time: .config/nextest.toml, python/pyproject.toml. The last lines count the tests
# that were skipped, and why; with TIERFEED_REQUIRE a skip that this machine does not excuse fails
# (docs/testing.md). The binary under test is $TIERFEED_BIN, which the Makefile sets after building it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
: "${TIERFEED_BIN:?is not set: start this through \`make test\`}"

TIERFEED_SKIPS=${TIERFEED_SKIPS:-$(mktemp)}
export TIERFEED_SKIPS
: >"$TIERFEED_SKIPS"

scripts/launchers/setup.sh || exit

failed=$(mktemp)
suite() {
  local name=$1
  shift
  printf '\ntest: %s: %s\n' "$name" "$*" >&2
  # What runs in the background of a script starts with SIGINT ignored; the tests of Ctrl-C need it.
  env --default-signal=INT "$@" || echo "$name" >>"$failed"
}

# shellcheck source=scripts/again.sh
source scripts/again.sh

# Each waits more than it computes, so one runs beside the other, and is shown behind it.
python=$(mktemp)
{
  suite python bash -c 'again "$@"' again .venv/bin/python -m pytest -c python/pyproject.toml \
    python/tests --ignore python/tests/test_cluster.py
  suite demo .venv/bin/python -m pytest -c python/pyproject.toml demo/tests
} >"$python" 2>&1 &
suite rust cargo nextest run --workspace ${CI:+--profile ci}
suite examples cargo test --workspace --doc --no-fail-fast
wait
cat "$python"
# Every command of SPECIFICATION.md and docs/figures.md selects a test; those are built by now.
suite specification .venv/bin/python scripts/lint/specification.py --tests

printf '\ntest: skipped: %s\n' "$(wc -l <"$TIERFEED_SKIPS")" >&2
cut -f 1 "$TIERFEED_SKIPS" | LC_ALL=C sort | uniq -c | sed 's/^/test: /' >&2
if [ -s "$failed" ]; then
  printf '\ntest: failed: %s\n' "$(paste -sd, "$failed")" >&2
  exit 1
fi
printf '\ntest: all suites passed\n' >&2
