#!/usr/bin/env bash
# Runs the ring of the hand-off, and the holes of a region, where threads, memory and schedules are not as
# kind as on one machine: loom, shuttle, late loads, ThreadSanitizer and two real processes. A few minutes.
#
# usage: model.sh [short|long]    long by default; short leaves the two processes out, and does less
#
# TIERFEED_MODEL_PREEMPTIONS   preemptions of a thread that loom tries (3, short 2)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${CARGO_TARGET_DIR:?is not set: start this through \`make model\`}"

readonly dose=${1:-long}
case $dose in
  short) preemptions=2 requests=50000 ;;
  long) preemptions=3 requests=2000000 ;;
  *) echo 'usage: model.sh [short|long]' >&2 && exit 2 ;;
esac

readonly target=$CARGO_TARGET_DIR/models
host=$(rustc -vV | sed -n 's/^host: //p')
readonly host

say() { printf 'model: %s\n' "$*" >&2; }

# in_world NAME FEATURES...: the models with the atomics and threads of that world.
in_world() {
  local name=$1
  shift
  say "$name"
  cargo run --quiet --release --manifest-path verification/models/Cargo.toml --target-dir "$target/$name" "$@"
}

LOOM_MAX_PREEMPTIONS=${TIERFEED_MODEL_PREEMPTIONS:-$preemptions} in_world loom --features loom
TIERFEED_MODEL_BATCHES=$requests in_world shuttle --features shuttle
TIERFEED_MODEL_BATCHES=$requests in_world late --features late
TIERFEED_MODEL_BATCHES=$requests in_world threads
# The compiler is the stable one, whose runtime of the sanitizer comes with it; its standard library is
# not instrumented, which hides races inside of that, not ours.
if compgen -G "$(rustc --print target-libdir)/librustc-*_rt.tsan.a" >/dev/null; then
  TIERFEED_MODEL_BATCHES=$requests RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer' \
    in_world thread-sanitizer --target "$host"
else
  say 'ThreadSanitizer: skipped, this compiler has no runtime for it'
fi
[ "$dose" = long ] || exit 0
say 'two processes'
cargo test --quiet -p tierfeed-handoff --lib two_million -- --ignored
