#!/usr/bin/env bash
# Builds the tierfeed binary with the indexer of HDF5 beside it, and the Python package, and puts the
# package into .venv. TIERFEED_PROFILE says how: release (the default), or dev, with all tests.
#
# One cargo command builds all: apart, they would resolve to other features of the crates they
# share, and half of them would be compiled twice. Wheels are packed from the same files (scripts/wheel.sh).
# Nothing is installed outside this folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${CARGO_TARGET_DIR:?is not set: start this through \`make build\`}"

case ${TIERFEED_PROFILE:-release} in
  release)
    folder=$CARGO_TARGET_DIR/release
    cargo build --release --package tierfeed --package tierfeed-hdf5-indexer --package tierfeed-python \
      --package tierfeed-tensorflow ;;
  dev)
    folder=$CARGO_TARGET_DIR/debug
    cargo build --workspace --lib --bins --examples --tests ;;
  *) echo "TIERFEED_PROFILE is $TIERFEED_PROFILE: release or dev is meant" >&2 && exit 2 ;;
esac

# install LIBRARY FILE
install() {
  local installed=python/python/tierfeed/$2
  cmp --silent "$folder/$1" "$installed" && return
  # Renamed into place: a training that runs right now keeps the file it has mapped.
  cp "$folder/$1" "$installed.new"
  mv "$installed.new" "$installed"
}
install libtierfeed_native.so _native.abi3.so
install libtierfeed_tensorflow.so _tensorflow.so
site_packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$PWD/python/python" >"$site_packages/tierfeed.pth"
