#!/usr/bin/env bash
# Runs the tests of launchers with the torchrun and the accelerate of a current PyTorch, beside the
# launchers that `make test` runs: Debian's PyTorch has no torchrun that starts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${TIERFEED_BIN:?is not set: start this through \`make test-launchers\`}"

scripts/launchers/setup.sh
TIERFEED_TORCH_BIN=$(scripts/frameworks/setup.sh newest)/bin
export TIERFEED_TORCH_BIN
.venv/bin/python -m pytest -c python/pyproject.toml python/tests/test_launchers.py \
  python/tests/test_cluster.py "$@"
