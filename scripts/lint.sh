#!/usr/bin/env bash
# Checks what a machine can check without running the code.
#
# A failing check does not hide the ones after it. scripts/setup-tools.sh installs what is used here.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

readonly bare_target=x86_64-unknown-none

failed=() checks=0
check() {
  local name=$1
  shift
  checks=$((checks + 1))
  printf 'lint: %s\n' "$name" >&2
  "$@" || failed+=("$name")
}

# Everything that core links, proc macros included. A new name here is a decision, not a detail.
core_dependencies() {
  diff --label allowed --label found -u \
    <(printf '%s\n' proc-macro2 quote serde serde_core serde_derive syn thiserror thiserror-impl tierfeed-core tierfeed-units unicode-ident) \
    <(cargo tree -p tierfeed-core -e normal --prefix none -f '{p}' | cut -d' ' -f1 | LC_ALL=C sort -u)
}

core_is_no_std() {
  grep -qx '#!\[no_std\]' core/src/lib.rs || {
    printf 'core/src/lib.rs must say #![no_std]\n' >&2
    return 1
  }
  if [ -d "$(rustc --print target-libdir --target "$bare_target")" ]; then
    cargo build --quiet -p tierfeed-core --target "$bare_target"
  else
    printf 'lint: core is not built for %s, which only rustup brings; the attribute is there\n' \
      "$bare_target" >&2
  fi
}

types_of_python() { (cd python && ../.venv/bin/python -m mypy --no-error-summary); }

check 'format' cargo fmt --all --check
check 'format of benchmarks' cargo fmt --manifest-path benchmarks/Cargo.toml --all --check
# Only the format: to compile the fuzz targets means to build libFuzzer and all dependencies again.
check 'format of the fuzz targets' cargo fmt --manifest-path verification/fuzz/Cargo.toml --check
check 'clippy' cargo clippy --quiet --workspace --all-targets -- -D warnings
check 'clippy of benchmarks' cargo clippy --quiet --manifest-path benchmarks/Cargo.toml --workspace --all-targets \
  -- -D warnings
check 'dependencies of core' core_dependencies
check 'core without std' core_is_no_std
check 'architecture' .venv/bin/python scripts/lint/architecture.py
check 'layers' .venv/bin/python scripts/lint/layers.py
check 'locks' .venv/bin/python scripts/lint/locks.py
check 'lines of crates and functions' python3 scripts/lines.py >/dev/null
check 'limits' .venv/bin/python scripts/lint/limits.py
check 'links' .venv/bin/python scripts/lint/links.py
check 'specification' .venv/bin/python scripts/lint/specification.py
check 'documentation' env RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' \
  cargo doc --quiet --workspace --no-deps --document-private-items
for manifest in Cargo.toml benchmarks/Cargo.toml; do
  check "licences and sources of $manifest" \
    cargo deny --log-level error --manifest-path "$manifest" check licenses bans sources
done
check 'python' .venv/bin/python -m ruff check --quiet .
check 'types of python' types_of_python
mapfile -t shell_scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)
check 'shell' shellcheck "${shell_scripts[@]}"

if [ "${#failed[@]}" -gt 0 ]; then
  printf 'lint: failed: %s\n' "$(IFS=,; echo "${failed[*]}")" >&2
  exit 1
fi
printf 'lint: all %s checks passed\n' "$checks" >&2
