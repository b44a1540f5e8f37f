#!/usr/bin/env bash
# Makes a release: checks that manifest and changelog name it, runs the gate, builds the wheel and tags.
# Nothing is pushed: the last lines say what is left to do.
#
# usage: release.sh VERSION      such as 0.2.0
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  printf 'release: error: %s\n' "$*" >&2
  exit 1
}

readonly version=${1:-} tag=v${1:-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "usage: make release VERSION=0.2.0, not '$version'"
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed: git status"
[ "$(git branch --show-current)" = main ] || fail "this is branch $(git branch --show-current), not main"
! git rev-parse --quiet --verify "refs/tags/$tag" >/dev/null || fail "the tag $tag exists"
grep -q "^## \[*$version\]*\( \|$\)" CHANGELOG.md || fail "CHANGELOG.md has no section '## $version'"

for manifest in Cargo.toml benchmarks/Cargo.toml; do
  stated=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$manifest" | head -n 1)
  [ "$stated" = "$version" ] || fail "$manifest says version = \"$stated\": write \"$version\" there"
  cargo metadata --manifest-path "$manifest" --locked --format-version 1 >/dev/null ||
    fail "the lock file of $manifest does not match: cargo update --manifest-path $manifest --workspace, and commit it"
done

.ci/run
wheel=$(CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target} make --no-print-directory wheel | tail -n 1)
[ -z "$(git status --porcelain)" ] || fail "the gate or the build changed tracked files: git status"
git tag --annotate "$tag" --message "tierfeed $version"
printf 'release: tagged %s; to publish: git push origin main %s, and upload %s\n' "$version" "$tag" "$wheel"
