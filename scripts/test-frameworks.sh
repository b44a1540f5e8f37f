#!/usr/bin/env bash
# Runs the tests of frameworks (python/tests/frameworks) with the newest version of each and with the
# oldest that tierfeed supports, both at a time. A test skips, and says so, where its environment lacks
# the framework.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${TIERFEED_BIN:?is not set: start this through \`make test-frameworks\`}"

# shellcheck source=scripts/again.sh
source scripts/again.sh

logs=$(mktemp -d)
readonly logs
trap 'rm -rf "$logs"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM

# test_with VERSIONS PYTEST_ARGUMENT...
test_with() {
  local versions=$1 home
  shift
  home=$(scripts/frameworks/setup.sh "$versions")
  export TIERFEED_FRAMEWORKS=$versions
  # The modules of this environment are others than those that the tests before had.
  [ -z "${TIERFEED_REQUIRE:-}" ] || TIERFEED_REQUIRE=$("$home/bin/python" scripts/offers.py)
  again "$home/bin/python" -m pytest -c python/pyproject.toml -o "cache_dir=$home/pytest" \
    python/tests/frameworks "$@"
}

declare -A started
for versions in newest oldest; do
  test_with "$versions" "$@" >"$logs/$versions" 2>&1 &
  started[$versions]=$!
done
failed=()
for versions in newest oldest; do
  wait "${started[$versions]}" || failed+=("$versions")
  printf '\nframeworks: %s versions\n' "$versions"
  cat "$logs/$versions"
done
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'frameworks: failed with: %s versions\n' "${failed[*]}" >&2
  exit 1
fi
