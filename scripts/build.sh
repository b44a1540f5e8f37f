#!/usr/bin/env bash
# Builds the tierfeed binary and installs the Python package into .venv, both optimised.
#
# Both builds name the same packages to cargo as far as they can, so that what they share is
# compiled once. Nothing is installed outside .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo build --release --package tierfeed
VIRTUAL_ENV="$PWD/.venv" .venv/bin/python -m maturin develop --quiet --release --manifest-path python/Cargo.toml
