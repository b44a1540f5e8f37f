#!/usr/bin/env bash
# Prepares the machine that run.sh starts: QEMU 10 and a 6.12 kernel of Debian's backports, unpacked
# next to an initramfs. Installs the Debian packages that this needs and are missing; apt's sources
# stay as they are. Does nothing if it was done before.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
readonly here
readonly home="${NUMA_MACHINE_DIR:-$here/../../target/numa-machine}"

# The pinned release: its present packages are fetched.
readonly release=bookworm-backports
# Programs that run in the guest or build it; qemu-system-x86 brings the libraries of its successor.
readonly packages=(
  qemu-system-x86 busybox-static numactl ndctl daxctl cpio zstd xz-utils kmod python3
  binutils
)
# Modules that guest/cxl.sh loads; the rest is built into the kernel.
readonly modules=(
  cxl_acpi cxl_pci cxl_mem cxl_pmem cxl_port dax_cxl dax_hmem device_dax kmem libnvdimm
)
# For inspections inside the machine.
readonly tools=(numactl cxl daxctl)

say() { printf 'numa-machine: %s\n' "$*" >&2; }

fail() {
  printf 'numa-machine: error: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf 'numa-machine:        %s\n' "$line" >&2; done
  exit 1
}

# shellcheck source=scripts/packages.sh
source "$here/../../scripts/packages.sh"

# The mirror that this host uses most.
debian_mirror() {
  # shellcheck disable=SC2016  # $(REPO_URI) is apt's, not the shell's.
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
    grep -v security | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }'
}

# Downloads and unpacks packages of backports with a separate apt configuration.
fetch_backports() {
  local mirror state="$home/apt" apt kernel package
  mirror="$(debian_mirror)"
  [ -n "$mirror" ] || fail "apt knows no mirror to fetch $release from." \
    "See /etc/apt/sources.list*, then run: apt-get update"
  rm -rf "$home"/{debs,qemu,kernel}
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$home/debs"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" \
    >"$state/sources.list"
  apt=(-qq -o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state/cache" -o APT::Sandbox::User=root
    -o Acquire::Retries=3 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30)
  # Without this mode apt reports success if it got nothing.
  apt-get "${apt[@]}" -o APT::Update::Error-Mode=any update >&2 ||
    fail "the package list of $release could not be fetched from $mirror." \
      "This needs the network once; read apt's message above."
  kernel="$(apt-cache "${apt[@]}" depends linux-image-cloud-amd64 |
    awk '/Depends:/ { print $2; exit }')"
  [ -n "$kernel" ] || fail "$release on $mirror has no linux-image-cloud-amd64."
  for package in "$kernel" qemu-system-x86 qemu-system-common qemu-system-data seabios; do
    (cd "$home/debs" && apt-get "${apt[@]}" download "$package" >&2) ||
      fail "$package of $release could not be fetched from $mirror." \
        "This needs the network once; read apt's message above."
  done
  for package in "$home"/debs/{qemu,seabios}*.deb; do dpkg -x "$package" "$home/qemu"; done
  dpkg -x "$home"/debs/linux-image*.deb "$home/kernel"
}

# Unpacked, because busybox's modprobe reads no compressed modules.
copy_module() {
  local root="$1" tree="$2" name="$3" found target
  found="$(find "$tree/kernel" -name "$name.ko*" -o -name "${name//_/-}.ko*" | head -n 1)"
  [ -n "$found" ] || return 0
  target="$root${found#"$home/kernel"}"
  mkdir -p "$(dirname "$target")"
  case "$found" in
    *.xz) xz -dc "$found" >"${target%.xz}" ;;
    *.zst) zstd -qdc "$found" >"${target%.zst}" ;;
    *) cp "$found" "$target" ;;
  esac
}

build_initramfs() {
  local root="$home/initramfs.root" tree version applet name
  rm -rf "$root"
  tree="$(echo "$home"/kernel/lib/modules/*)"
  version="$(basename "$tree")"
  mkdir -p "$root"/{bin,sbin,proc,sys,dev,tmp,root,payload,"lib/modules/$version"}
  cp /bin/busybox "$root/bin/busybox"
  for applet in $(/bin/busybox --list); do
    [ "$applet" = busybox ] || ln -sf busybox "$root/bin/$applet"
  done
  for name in "${tools[@]}"; do
    cp -L "$(command -v "$name")" "$root/bin/"
    "$here/libraries.sh" "$root" "$root/bin/$name"
  done
  for name in "${modules[@]}"; do copy_module "$root" "$tree" "$name"; done
  cp "$tree"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$version/"
  depmod -b "$root" "$version"
  # The kernel reads archives one after the other; each must end on a multiple of four bytes.
  (cd "$root" && find . | cpio -o -H newc --quiet | zstd -q -3) >"$home/initramfs"
  truncate -s %4 "$home/initramfs"
  rm -rf "$root"
}

# By content, because a checkout gives every file a new time.
recipe="$(cat "${BASH_SOURCE[0]}" "$here/libraries.sh" | sha256sum)"
[ "$(cat "$home/ready" 2>/dev/null)" != "$recipe" ] || exit 0
install_packages "${packages[@]}"
mkdir -p "$home"
if [ ! -e "$home/vmlinux" ]; then
  say "fetching QEMU and a kernel of $release"
  fetch_backports
  python3 "$here/unpack_kernel.py" "$home"/kernel/boot/vmlinuz-* "$home/vmlinux"
fi
say "building the initramfs"
build_initramfs
echo "$recipe" >"$home/ready"
say "ready: $(du -sm "$home" | cut -f1) MB in $home"
