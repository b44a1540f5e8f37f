#!/usr/bin/env bash
# Builds the workspace benchmarks/: `tierfeed-bench`, `tierfeed-chaos`, which it starts, and the S3 server of both.
# They start the tierfeed binary beside them. TIERFEED_PROFILE as for build.sh: with dev, all tests are built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../benchmarks"
: "${CARGO_TARGET_DIR:?is not set: start this through \`make build-benchmarks\`}"

case ${TIERFEED_PROFILE:-release} in
  release) cargo build --release --workspace --lib --bins --examples ;;
  dev) cargo build --workspace --lib --bins --examples --tests ;;
  *) echo "TIERFEED_PROFILE is $TIERFEED_PROFILE: release or dev is meant" >&2 && exit 2 ;;
esac
