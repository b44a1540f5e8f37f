#!/usr/bin/env bash
# Runs tests of the Python package under AddressSanitizer, in an interpreter that has its runtime. Its last
# line, and only that, goes to the standard output.
#
# Everything in Rust is compiled with the sanitizer, the standard library too; the interpreter and other
# extensions are not, but what they allocate, free and copy goes through the runtime. Memory that is shared
# with the agent is off limits between leases: platform/numa-memory/src/asan.rs tells the runtime.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${CARGO_TARGET_DIR:?is not set: start this through \`make sanitize\`}"
: "${TIERFEED_BIN:?is not set: start this through \`make sanitize\`}"

export CARGO_TARGET_DIR=$CARGO_TARGET_DIR/address-sanitizer
host=$(rustc -vV | sed -n 's/^host: //p')
runtime=$(echo "$(rustc --print target-libdir)"/librustc-*_rt.asan.a)
readonly host runtime environment=$CARGO_TARGET_DIR/environment

# What looks at batches and leases from within its process.
readonly python_tests=(announce batch direct failure feed index in_place lease misuse node)

say() { printf 'sanitize: addresses: %s\n' "$*" >&2; }

# Leaks: an interpreter ends without freeing everything. SIGBUS: a test wants to see a process die of it.
export ASAN_OPTIONS='detect_leaks=0 handle_sigbus=0 abort_on_error=0'
# An environment like .venv, with another interpreter, in which another native module comes first.
make_environment() {
  mkdir -p "$environment/bin" "$environment/package"
  local flags
  flags=$(.venv/bin/python -c 'import sysconfig
of = sysconfig.get_config_var
print("-I" + sysconfig.get_path("include"), "-L" + of("LIBDIR"), "-lpython" + of("LDVERSION"))')
  # shellcheck disable=SC2086  # several options
  cc -O1 scripts/sanitize/python.c -o "$environment/bin/python" -Wl,--export-dynamic \
    -Wl,--whole-archive "$runtime" -Wl,--no-whole-archive $flags -lm -lpthread -ldl -lrt
  cp .venv/pyvenv.cfg "$environment/"
  ln -sfn "$PWD/.venv/lib" "$environment/lib"
  rm -rf "$environment/package/tierfeed"
  cp -r python/python/tierfeed "$environment/package/"
  cp "$CARGO_TARGET_DIR/$host/debug/libtierfeed_native.so" "$environment/package/tierfeed/_native.abi3.so"
}

say 'building'
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address cargo build --quiet -Zbuild-std --target "$host" \
  -p tierfeed-python --features tierfeed-numa-memory/address-sanitizer
make_environment
# Left at once: the end of an interpreter with PyTorch in it may take minutes.
readonly run='import os, sys, pytest
code = pytest.main(sys.argv[1:])
sys.stdout.flush()
os._exit(code)'
python() {
  PYTHONPATH=$environment/package PYTHONMALLOC=malloc "$environment/bin/python" -c "$run" \
    -c python/pyproject.toml -p no:cacheprovider "$@"
}

output=$(mktemp)
trap 'rm -f "$output"' EXIT

say 'a read of a batch that went back must be found'
if python -s python/tests/stale_read.py >"$output" 2>&1; then
  say 'it was not: the sanitizer sees nothing'
  exit 1
fi
grep -q 'ERROR: AddressSanitizer: use-after-poison' "$output" || {
  cat "$output" >&2
  exit 1
}

files=("${python_tests[@]/#/python/tests/test_}")
python "${files[@]/%/.py}" 2>&1 | tee "$output" >&2
in_python=$(sed -nE 's/^=+ .*\b([0-9]+) passed.*/\1/p' "$output" | tail -n 1)
echo "addresses: no fault in $in_python tests of the Python package; the one on purpose was found"
