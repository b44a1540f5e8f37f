#!/usr/bin/env bash
# The main job on real input: the same training fed by the plain DataLoader, then by tierfeed.
#
# Photographs come from TIERFEED_DEMO_DATA, else from a sample beside the checkout, else they are
# made. TIERFEED_DEMO_IMAGES and TIERFEED_DEMO_EPOCHS shorten it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${TIERFEED_BIN:?is not set: start this through \`make demo\`}"

readonly work=.tierfeed/demo
readonly sample=../shared/data/imagenet-sample
readonly images=${TIERFEED_DEMO_IMAGES:-500}

mkdir -p "$work"
if [ -n "${TIERFEED_DEMO_DATA:-}" ]; then
  dataset=$TIERFEED_DEMO_DATA
  [ -d "$dataset" ] || { echo "demo: TIERFEED_DEMO_DATA is $dataset: no such folder" >&2; exit 2; }
elif [ -d "$sample" ] && [ "$images" -ge 500 ]; then
  dataset=$sample
else
  dataset=.tierfeed/demo-data
  echo "demo: making $images photographs in $dataset" >&2
  .venv/bin/python demo/photographs.py "$dataset" --images "$images"
fi

exec .venv/bin/python demo/compare.py --dataset "$dataset" --work "$work" \
  --epochs "${TIERFEED_DEMO_EPOCHS:-3}"
