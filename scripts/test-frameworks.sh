#!/usr/bin/env bash
# Runs the tests of frameworks (python/tests/frameworks) with the newest version of each and with the
# oldest that tierfeed supports. A test skips, and says so, where its environment lacks the framework.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${TIERFEED_BIN:?is not set: start this through \`make test-frameworks\`}"

# shellcheck source=scripts/again.sh
source scripts/again.sh

failed=()
for versions in newest oldest; do
  home=$(scripts/frameworks/setup.sh "$versions")
  printf '\nframeworks: %s versions\n' "$versions" >&2
  export TIERFEED_FRAMEWORKS=$versions
  # The modules of this environment are others than those that the tests before had.
  [ -z "${TIERFEED_REQUIRE:-}" ] || TIERFEED_REQUIRE=$("$home/bin/python" scripts/offers.py)
  again "$home/bin/python" -m pytest -c python/pyproject.toml \
    python/tests/frameworks "$@" || failed+=("$versions")
done
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'frameworks: failed with: %s versions\n' "${failed[*]}" >&2
  exit 1
fi
