#!/usr/bin/env bash
# Runs the tests of launchers with the torchrun and the accelerate of a current PyTorch, beside the
# launchers that `make test` runs: Debian's PyTorch has no torchrun that starts.
#
# PyTorch gets an environment of its own, 1.4 GB in target/launchers: its package without the GPU
# libraries, for which stub_libraries.py builds stand-ins.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${TIERFEED_BIN:?is not set: start this through \`make test-launchers\`}"

readonly home="${CARGO_TARGET_DIR:-$PWD/target}/launchers"

make_environment() {
  [ -e "$home/complete" ] && return
  rm -rf "$home"
  /usr/bin/python3 -m venv "$home"
  local pip=("$home/bin/pip" install --quiet --disable-pip-version-check --no-compile)
  "${pip[@]}" --no-deps torch accelerate
  "${pip[@]}" typing_extensions filelock sympy networkx jinja2 fsspec numpy psutil pyyaml packaging \
    huggingface_hub safetensors
  "$home/bin/python" scripts/launchers/stub_libraries.py \
    "$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch/lib"
  "$home/bin/python" -c 'import torch, accelerate; print("torch", torch.__version__)'
  touch "$home/complete"
}

scripts/launchers/setup.sh
make_environment
export TIERFEED_TORCH_BIN="$home/bin" PYTHONPATH="$PWD/python/python"
.venv/bin/python -m pytest -c python/pyproject.toml python/tests/test_launchers.py \
  python/tests/test_cluster.py "$@"
