#!/usr/bin/env bash
# Builds the container image of tierfeed, as an OCI layout and without a registry: the C library and what `cp` needs from
# Debian, and the wheel, unpacked in /opt/tierfeed.
#
# usage: image.sh [FOLDER]       where the layout goes, target/image without it
#
# `skopeo copy oci:target/image:VERSION docker://...` brings it to a registry.
# TIERFEED_PROFILE=dev packs what the tests built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${CARGO_TARGET_DIR:?is not set: start this through \`make image\`}"

readonly folder=${1:-$CARGO_TARGET_DIR/image} base=bookworm
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

scripts/wheel.sh "$work/wheel" >&2
# A layer has the time of the commit, so that the same tree gives the same image.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH

mkdir -p "$work/opt/tierfeed/bin"
.venv/bin/python -m zipfile -e "$work"/wheel/*.whl "$work/opt/tierfeed"
chmod 755 "$work/opt/tierfeed/tierfeed/_bin/tierfeed"
ln -s ../tierfeed/_bin/tierfeed "$work/opt/tierfeed/bin/tierfeed"

# Unpacked and not installed: nothing of it runs when the image is built.
mmdebstrap --quiet --variant=extract --include=libc6,libgcc-s1,ca-certificates,coreutils "$base" "$work/debian.tar"
tar --create --file "$work/tierfeed.tar" --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner \
  --mtime="@$SOURCE_DATE_EPOCH" opt

rm -rf "$folder"
umoci init --layout "$folder"
umoci new --image "$folder:$version"
for layer in debian tierfeed; do
  umoci raw add-layer --image "$folder:$version" "$work/$layer.tar"
done
umoci config --image "$folder:$version" --created "$(date --utc --date="@$SOURCE_DATE_EPOCH" +%FT%TZ)" \
  --config.entrypoint /opt/tierfeed/bin/tierfeed --config.user 65532:65532 --config.env PATH=/opt/tierfeed/bin:/usr/bin:/bin
umoci gc --layout "$folder"
printf 'image: %s:%s, %s\n' "$folder" "$version" "$(du -sh "$folder" | cut -f 1)"
