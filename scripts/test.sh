#!/usr/bin/env bash
# Runs every test: Rust, the examples in the documentation, the Python package, the demo.
#
# A failing suite does not hide the ones after it; the exit status tells whether all passed.
# The binary under test is $TIERFEED_BIN, which the Makefile sets after building it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
: "${TIERFEED_BIN:?is not set: start this through \`make test\`}"

failed=()
suite() {
  local name=$1
  shift
  printf '\ntest: %s: %s\n' "$name" "$*" >&2
  # What runs in the background of a script starts with SIGINT ignored; the tests of Ctrl-C need it.
  env --default-signal=INT "$@" || failed+=("$name")
}

if cargo nextest --version >/dev/null 2>&1; then
  suite rust cargo nextest run --workspace
  suite examples cargo test --workspace --doc --no-fail-fast
else
  suite 'rust and examples' cargo test --workspace --no-fail-fast
fi
suite python .venv/bin/python -m pytest python/tests
suite demo .venv/bin/python -m pytest demo/tests

if [ "${#failed[@]}" -gt 0 ]; then
  printf '\ntest: failed: %s\n' "$(IFS=,; echo "${failed[*]}")" >&2
  exit 1
fi
printf '\ntest: all suites passed\n' >&2
