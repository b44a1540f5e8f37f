#!/usr/bin/env bash
# From nothing to the first batch: a new environment, the wheel, one line of Python. Prints the seconds of each.
#
# usage: first-batch.sh [WHEEL [PYTHON]]     the newest of target/wheel without it, and python3
#
# The dataset is an image folder of 1,000 files of 100 kB, which are there before.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

wheel=${1:-$(find "${CARGO_TARGET_DIR:-$root/target}/wheel" -maxdepth 1 -name '*.whl' 2>/dev/null | head -1)}
[ -f "$wheel" ] || { echo 'first-batch: no wheel; "make wheel" builds one' >&2; exit 2; }
wheel=$(realpath "$wheel")
python=${2:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for class in cat dog; do
  mkdir -p "photos/$class"
  head -c 50000000 /dev/urandom | split -b 100000 -d -a 3 --additional-suffix=.jpg - "photos/$class/"
done
# Nothing that is installed elsewhere, and no figures of earlier runs.
export HOME=$work XDG_STATE_HOME=$work/state
unset PYTHONPATH TIERFEED_BIN TIERFEED_EXE TIERFEED_RUN_DIR

readonly first='import tierfeed; feed = tierfeed.connect("photos", batch_size=32); batch = next(iter(feed.epoch(0)))
print(f"{len(batch)} samples by the {batch.origin}")'

seconds() { date +%s.%N; }
start=$(seconds)
"$python" -m venv new
made=$(seconds)
new/bin/pip install --quiet --no-index --disable-pip-version-check "$wheel"
installed=$(seconds)
said=$(new/bin/python -c "$first" 2>agent.log) || { cat agent.log >&2; exit 1; }
ended=$(seconds)
# The agent writes its report after the last line of Python, so the time is that of the whole command.
awk -v a="$start" -v b="$made" -v c="$installed" -v d="$ended" -v said="$said" 'BEGIN {
  printf "environment %.1f s, wheel %.1f s, first batch %.1f s (%s); together %.1f s\n", b-a, c-b, d-c, said, d-a }'
