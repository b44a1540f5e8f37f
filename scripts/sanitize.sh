#!/usr/bin/env bash
# Runs tests with what the compiler adds to find wrong uses of memory: ThreadSanitizer over the data plane,
# AddressSanitizer over the Python package and what it loads. Each must find one fault that is there on
# purpose. A part that fails hides none after it.
#
# usage: sanitize.sh [thread|address]    both by default
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
: "${CARGO_TARGET_DIR:?is not set: start this through \`make sanitize\`}"

case ${1:-} in
  '') parts=(thread address) ;;
  thread | address) parts=("$1") ;;
  *) echo 'usage: sanitize.sh [thread|address]' >&2 && exit 2 ;;
esac

failed=() said=$(mktemp)
trap 'rm -f "$said"' EXIT
for part in "${parts[@]}"; do
  "scripts/sanitize/$part.sh" >>"$said" || failed+=("$part")
done
printf '\n' >&2
sed 's/^/sanitize: /' "$said"
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'sanitize: failed: %s\n' "$(IFS=,; echo "${failed[*]}")" >&2
  exit 1
fi
