#!/usr/bin/env bash
# Builds the tierfeed binary with the indexer of HDF5 beside it, and the Python package, all optimised,
# and puts the package into .venv.
#
# One cargo command builds all: apart, they would resolve to other features of the crates they
# share, and half of them would be compiled twice. That is why this does not call maturin, which is
# what builds wheels (`pip install ./python`). Nothing is installed outside this folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${CARGO_TARGET_DIR:?is not set: start this through \`make build\`}"

# Without extension-module the library would bring a second interpreter into the process.
cargo build --release --package tierfeed --package tierfeed-hdf5-indexer \
  --package tierfeed-python --features pyo3/extension-module

built=$CARGO_TARGET_DIR/release/libtierfeed_native.so
installed=python/python/tierfeed/_native.abi3.so
if ! cmp --silent "$built" "$installed"; then
  # Renamed into place: a training that runs right now keeps the file it has mapped.
  cp "$built" "$installed.new"
  mv "$installed.new" "$installed"
fi
site_packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$PWD/python/python" >"$site_packages/tierfeed.pth"
