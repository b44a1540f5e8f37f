#!/usr/bin/env bash
# Installs what tierfeed needs on a Debian 12 machine, and only what is missing:
# Debian packages, Rust (through rustup), and a Python environment in .venv with the libraries that
# the tests of formats read with.
#
# Quick when nothing is missing, so every make target may call it. Changes nothing outside apt,
# rustup's own folders and .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly packages=(
  build-essential cmake nasm pkg-config libhdf5-dev libhwloc-dev libudev-dev
  python3 python3-dev python3-venv
  python3-numpy python3-pil python3-pytest python3-torch
  curl ca-certificates procps
)
# What the tests of formats read with, 145 MB in all; without them those tests are skipped. pyarrow 18
# and later may want a newer NumPy than Debian's torch can live with.
readonly readers=(
  'pyarrow>=15,<18' 'h5py>=3.9,<4' 'lmdb>=1.4,<4' 'webdataset>=1.0,<2' 'xxhash>=3,<5'
)
# The interpreter that Debian's torch and numpy belong to; another python3 on PATH has neither.
readonly python=/usr/bin/python3
# The one address in this repository: where rustup's authors publish its installer.
readonly rustup_installer=https://sh.rustup.rs

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
  printf 'setup: error: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf 'setup:        %s\n' "$line" >&2; done
  exit 1
}

# shellcheck source=scripts/packages.sh
source scripts/packages.sh

# The version that the manifest asks for, as 1.88.
required_rust() { sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml; }

# Reports the version of the cargo on PATH, or nothing when there is none that runs.
present_rust() { { cargo --version 2>/dev/null || true; } | sed -n 's/^cargo \([0-9.]*\).*/\1/p'; }

rust_is_new_enough() {
  local present
  present=$(present_rust)
  [ -n "$present" ] &&
    [ "$(printf '%s\n' "$(required_rust)" "$present" | sort --version-sort | head -n 1)" = "$(required_rust)" ]
}

install_rust() {
  rust_is_new_enough && return
  local present
  present=$(present_rust)
  if command -v rustup >/dev/null; then
    say "Rust is ${present:-absent}, $(required_rust) or newer is needed: rustup installs stable for this folder"
    if ! rustup toolchain install stable --profile minimal --component rustfmt --component clippy >&2 ||
      ! rustup override set stable >&2; then
      fail "rustup could not install the stable toolchain." "Read its message above."
    fi
  else
    say "Rust is ${present:-absent}, $(required_rust) or newer is needed: installing rustup for this user"
    local installer
    installer=$(mktemp)
    curl --proto '=https' --tlsv1.2 --silent --show-error --fail --location --retry 3 \
      --output "$installer" "$rustup_installer" ||
      fail "rustup's installer could not be fetched from $rustup_installer." \
        "Install Rust $(required_rust) or newer in another way and put cargo on PATH."
    sh "$installer" -y --no-modify-path --profile minimal \
      --component rustfmt --component clippy >&2 ||
      fail "rustup's installer failed." "Read its message above."
    rm -f "$installer"
  fi
  hash -r
  rust_is_new_enough ||
    fail "cargo is still '$(present_rust)' after the installation, and $(required_rust) is needed." \
      "Look at \`command -v cargo\`: another cargo may stand before ~/.cargo/bin on PATH."
}

venv_is_good() {
  .venv/bin/python -c 'import sys; from importlib.util import find_spec as found
sys.exit(not all(map(found, ("numpy", "PIL", "pytest", "torch"))))' 2>/dev/null
}

make_venv() {
  venv_is_good && return
  say "making the Python environment .venv from $python"
  rm -rf .venv
  "$python" -m venv --system-site-packages .venv ||
    fail "$python could not make a virtual environment." "Is python3-venv installed?"
  venv_is_good ||
    fail "the environment .venv lacks numpy, PIL, pytest or torch." \
      "They come with Debian's packages: apt-get install --reinstall python3-numpy python3-pil python3-pytest python3-torch"
}

readers_are_there() {
  .venv/bin/python -c 'import sys; from importlib.util import find_spec as found
sys.exit(not all(map(found, ("pyarrow", "h5py", "lmdb", "webdataset", "xxhash"))))' 2>/dev/null
}

install_readers() {
  readers_are_there && return
  say "installing what the tests of formats read with into .venv: ${readers[*]}"
  local constraints
  constraints=$(mktemp)
  # Debian's torch is built for Debian's NumPy, so pip shall bring no other.
  .venv/bin/python -c 'import numpy; print(f"numpy=={numpy.__version__}")' >"$constraints"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
    --retries 2 --timeout 20 --constraint "$constraints" "${readers[@]}" >&2 ||
    say "pip could not install them; read its message above. Their tests will be skipped."
  rm -f "$constraints"
}

export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
install_packages "${packages[@]}"
install_rust
make_venv
install_readers
