#!/usr/bin/env bash
# Trainings on several nodes, all on this host: on a private Slurm of four nodes, and under Open MPI, MPICH and
# torchrun (python/tests/test_cluster.py). Arguments are passed to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${TIERFEED_BIN:?is not set: start this through \`make test-cluster\`}"

.venv/bin/python -m pytest -c python/pyproject.toml python/tests/test_cluster.py "$@"
