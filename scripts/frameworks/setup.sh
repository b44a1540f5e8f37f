#!/usr/bin/env bash
# Makes the Python environments in which frameworks are tested, where they are missing, and prints the
# folder of the one that is asked for.
#
# usage: setup.sh newest|oldest|peers
#
# `newest` has every framework in its current version (3.4 GB). `oldest` has the lowest version of those
# whose lower bound in python/pyproject.toml is tested here: TensorFlow, JAX, Grain, Keras and fsspec. The
# other bounds are in docs/testing.md. PyTorch comes without its GPU libraries: stub_libraries.py builds
# stand-ins. `peers` has `newest` below it, and the loaders that `tierfeed-bench loaders` compares (1 GB).
# All use the package of this folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly which=${1:?newest or oldest}
readonly home="${CARGO_TARGET_DIR:-$PWD/target}/frameworks/$which"

say() { printf 'frameworks: %s\n' "$*" >&2; }

# Packages that name torch as a dependency are installed without theirs, or pip would fetch the GPU
# libraries. What those need stands in the second list.
case $which in
  newest)
    beside_torch=(torch torchvision torchdata accelerate transformers lightning pytorch-lightning lightning-utilities
      torchmetrics)
    others=(tensorflow-cpu jax grain keras fsspec datasets numpy pandas pillow pyarrow aiohttp filelock
      huggingface_hub jinja2 networkx packaging psutil pyyaml regex requests safetensors sympy tokenizers
      tqdm typer typing_extensions)
    ;;
  oldest)
    beside_torch=()
    others=('tensorflow-cpu==2.18.1' 'jax==0.4.30' 'jaxlib==0.4.30' 'grain==0.2.3' 'keras==3.5.0'
      'fsspec==2023.10.0')
    ;;
  peers)
    beside_torch=(mosaicml-streaming litdata webdataset spdl spdl_core spdl_io nvidia-dali-cuda120 nvidia-nvimgcodec-cu12
      astunparse nvtx libcst makefun optree boto3 botocore s3transfer jmespath python-dateutil brotli cramjam
      python-snappy 'xxhash<4' 'zstd<2' catalogue braceexpand obstore tifffile gast six)
    others=()
    ;;
  *)
    say "error: $which is none of newest, oldest and peers"
    exit 2
    ;;
esac

make_environment() {
  say "installing the $which versions of the frameworks into $home"
  rm -rf "$home"
  /usr/bin/python3 -m venv "$home"
  local pip=("$home/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile)
  local packages
  packages=$(packages_of "$home")
  if [ "$which" = peers ]; then
    packages_of "$("$0" newest)" >"$packages/newest.pth"
  else
    "${pip[@]}" "${others[@]}" pytest pytest-timeout
  fi
  if [ "${#beside_torch[@]}" -gt 0 ]; then
    "${pip[@]}" --no-deps "${beside_torch[@]}"
  fi
  if [ "$which" = newest ]; then
    "$home/bin/python" scripts/frameworks/stub_libraries.py "$packages/torch/lib"
    "$home/bin/python" -c 'import torch, accelerate'
  fi
  echo "$PWD/python/python" >"$packages/tierfeed.pth"
  printf '%s\n' "${others[*]} ${beside_torch[*]}" >"$home/complete"
}

packages_of() {
  "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}

# Another list of packages makes a new environment.
if [ "$(cat "$home/complete" 2>/dev/null)" != "${others[*]} ${beside_torch[*]}" ]; then
  make_environment >&2
fi
printf '%s\n' "$home"
