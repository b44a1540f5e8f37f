#!/usr/bin/env bash
# Installs what `make build` built below PREFIX: the programs, manual pages, completions for shells.
# `install.sh uninstall` removes the same files again. The Python package is installed by pip, into
# whichever environment trains (docs/install.md).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${CARGO_TARGET_DIR:?is not set: start this through \`make install\`}"
: "${PREFIX:?is not set: start this through \`make install\`}"

built=$CARGO_TARGET_DIR/${TIERFEED_PROFILE:-release}
if [ "${TIERFEED_PROFILE:-}" = dev ]; then
  # The folder of cargo's profile `dev` has another name.
  built=$CARGO_TARGET_DIR/debug
fi
programs=(tierfeed tierfeed-hdf5-indexer)
completions=(
  share/bash-completion/completions/tierfeed
  share/zsh/site-functions/_tierfeed
  share/fish/vendor_completions.d/tierfeed.fish
)

if [ "${1:-install}" = uninstall ]; then
  rm -f "${programs[@]/#/$PREFIX/bin/}" "${completions[@]/#/$PREFIX/}"
  rm -f "$PREFIX"/share/man/man1/tierfeed.1 "$PREFIX"/share/man/man1/tierfeed-*.1
  echo "removed from $PREFIX; the Python package: pip uninstall tierfeed"
  exit
fi

for program in "${programs[@]}"; do
  install -D -m 755 "$built/$program" "$PREFIX/bin/$program"
done
tierfeed=$PREFIX/bin/tierfeed
"$tierfeed" man --output "$PREFIX/share/man/man1"
for file in "${completions[@]}"; do
  mkdir -p "$PREFIX/${file%/*}"
done
"$tierfeed" completions bash >"$PREFIX/${completions[0]}"
"$tierfeed" completions zsh >"$PREFIX/${completions[1]}"
"$tierfeed" completions fish >"$PREFIX/${completions[2]}"
echo "installed below $PREFIX"
case ":$PATH:" in
  *":$PREFIX/bin:"*) ;;
  *) echo "add it to the PATH: export PATH=\"$PREFIX/bin:\$PATH\"" ;;
esac
