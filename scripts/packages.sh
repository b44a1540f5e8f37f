# Installs Debian packages, and only what is missing. Sourced by scripts that define say and fail.
# shellcheck shell=bash

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  elif command -v sudo >/dev/null; then
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  else
    fail "packages are missing, and this is neither root nor is there sudo." \
      "Run this as root, then repeat:" "$*"
  fi
}

# apt waits for the lock of dpkg by itself, but not for the one of its package lists.
update_package_lists() {
  local attempt
  for attempt in 1 2 3 4 5 6; do
    as_root apt-get -qq update >&2 && return
    say "apt-get update failed (attempt $attempt of 6); another apt may be running, trying again"
    sleep 10
  done
  fail "apt-get update failed six times." \
    "Read its message above: the network and /etc/apt/sources.list* are what it needs."
}

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null |
      grep -qx installed || echo "$package"
  done
}

install_packages() {
  command -v dpkg-query >/dev/null ||
    fail "this is not Debian or a relative of it: there is no dpkg." \
      "Install the counterparts of these yourself: $*"
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [ "${#missing[@]}" -eq 0 ] && return
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  update_package_lists
  as_root apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends \
    "${missing[@]}" >&2 ||
    fail "apt-get could not install: ${missing[*]}" "Read its message above."
}
