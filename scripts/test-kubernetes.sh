#!/usr/bin/env bash
# Checks the chart of configs/kubernetes against the schemas of the kinds that it makes, builds the image, and runs the
# training of the chart in containers.
#
# usage: test-kubernetes.sh [ARGUMENT OF PYTEST...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${CARGO_TARGET_DIR:?is not set: start this through \`make test-kubernetes\`}"

PYTHONPATH=$PWD/python/tests .venv/bin/python -m pytest -p no:cacheprovider -o timeout=300 \
  --rootdir verification/kubernetes verification/kubernetes "$@"
