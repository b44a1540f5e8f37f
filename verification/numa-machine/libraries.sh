#!/usr/bin/env bash
# Copies the libraries that programs are linked to into a tree, each to the path that it has here.
#
# usage: libraries.sh ROOT PROGRAM...
set -euo pipefail
root="${1:?a tree}"
shift

for program in "$@"; do
  # A static program has none, and ldd fails.
  needed="$(ldd "$program" 2>/dev/null)" || continue
  if missing="$(grep 'not found' <<<"$needed")"; then
    printf 'numa-machine: error: %s needs what this host lacks:\n%s\n' "$program" "$missing" >&2
    exit 1
  fi
  grep -o '/[^ ]*' <<<"$needed" | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -Ln "$library" "$root$library"
  done
done
