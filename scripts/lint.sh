#!/usr/bin/env bash
# Checks what a machine can check without running the code.
#
# A failing check does not hide the ones after it. Tools that the set-up does not install
# (cargo-deny, shellcheck, pyflakes, the target x86_64-unknown-none) are used where they are there.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

readonly bare_target=x86_64-unknown-none

failed=()
check() {
  local name=$1
  shift
  printf 'lint: %s\n' "$name" >&2
  "$@" || failed+=("$name")
}
skip() { printf 'lint: %s: skipped, %s is not installed\n' "$1" "$2" >&2; }

# Everything that core links, proc macros included. A new name here is a decision, not a detail.
core_dependencies() {
  diff --label allowed --label found -u \
    <(printf '%s\n' proc-macro2 quote syn thiserror thiserror-impl tierfeed-core unicode-ident) \
    <(cargo tree -p tierfeed-core -e normal --prefix none -f '{p}' | cut -d' ' -f1 | LC_ALL=C sort -u)
}

core_is_no_std() {
  grep -qx '#!\[no_std\]' core/src/lib.rs || {
    printf 'core/src/lib.rs must say #![no_std]\n' >&2
    return 1
  }
  if [ -d "$(rustc --print target-libdir --target "$bare_target")" ]; then
    cargo build --quiet -p tierfeed-core --target "$bare_target"
  fi
}

check 'format' cargo fmt --all --check
# Only the format: to compile the fuzz targets means to build libFuzzer and all dependencies again.
check 'format of the fuzz targets' cargo fmt --manifest-path fuzz/Cargo.toml --check
# With the feature, so that the tests behind it are read too.
check 'clippy' cargo clippy --quiet --workspace --all-targets --features numa_tests -- -D warnings
check 'dependencies of core' core_dependencies
check 'core without std' core_is_no_std
check 'documentation' env RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' \
  cargo doc --quiet --workspace --no-deps --document-private-items
if cargo deny --version >/dev/null 2>&1; then
  check 'licences and sources' cargo deny --log-level error check licenses bans sources
else
  skip 'licences and sources' cargo-deny
fi
check 'python' .venv/bin/python -m compileall -q demo python/python python/tests scripts/numa-machine scripts/fixtures
if .venv/bin/python -m pyflakes --version >/dev/null 2>&1; then
  check 'pyflakes' .venv/bin/python -m pyflakes demo python/python python/tests scripts/numa-machine scripts/fixtures
else
  skip 'pyflakes' pyflakes
fi
if command -v shellcheck >/dev/null; then
  mapfile -t shell_scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)
  check 'shell' shellcheck "${shell_scripts[@]}"
else
  skip 'shell' shellcheck
fi

if [ "${#failed[@]}" -gt 0 ]; then
  printf 'lint: failed: %s\n' "$(IFS=,; echo "${failed[*]}")" >&2
  exit 1
fi
printf 'lint: all checks passed\n' >&2
