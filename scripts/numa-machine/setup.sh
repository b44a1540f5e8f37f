#!/usr/bin/env bash
# Prepares the machine that run.sh starts: QEMU 10 and a 6.12 kernel of Debian's backports, unpacked
# next to an initramfs. Nothing of the host's apt sources changes. Quick when it was done before.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
readonly here
readonly home="${NUMA_MACHINE_DIR:-$here/../../target/numa-machine}"

# What runs in the guest or builds it; qemu-system-x86 brings the libraries of its successor.
readonly packages=(
  qemu-system-x86 busybox-static numactl hwloc-nox ndctl daxctl cpio zstd xz-utils kmod python3
)
# What cxl.sh in the guest loads; the rest is built into the kernel.
readonly modules=(
  cxl_acpi cxl_pci cxl_mem cxl_pmem cxl_port dax_cxl dax_hmem device_dax kmem libnvdimm
)
# For programs that are linked dynamically, as those of rustc are.
readonly libraries=(ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libgcc_s.so.1)

say() { printf 'numa-machine: %s\n' "$*" >&2; }

fail() {
  printf 'numa-machine: error: %s\n' "$*" >&2
  exit 1
}

check_packages() {
  local package missing=()
  for package in "${packages[@]}"; do
    dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null |
      grep -qx installed || missing+=("$package")
  done
  [ "${#missing[@]}" -eq 0 ] ||
    fail "run first: apt-get install --no-install-recommends ${missing[*]}"
}

# The mirror that this host already uses most.
debian_mirror() {
  # shellcheck disable=SC2016  # $(REPO_URI) is apt's, not the shell's.
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
    grep -v security | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }'
}

# Downloads and unpacks packages of backports with an apt configuration of our own.
fetch_backports() {
  local mirror state="$home/apt" apt kernel
  mirror="$(debian_mirror)"
  [ -n "$mirror" ] || fail "apt knows no mirror; run: apt-get update"
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$home/debs"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror" \
    "bookworm-backports main" >"$state/sources.list"
  apt=(-o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state/cache" -o APT::Sandbox::User=root)
  apt-get "${apt[@]}" -qq update
  kernel="$(apt-cache "${apt[@]}" depends linux-image-cloud-amd64 |
    awk '/Depends:/ { print $2; exit }')"
  (cd "$home/debs" && apt-get "${apt[@]}" -qq download \
    "$kernel" qemu-system-x86 qemu-system-common qemu-system-data seabios)
  local package
  for package in "$home"/debs/{qemu,seabios}*.deb; do dpkg -x "$package" "$home/qemu"; done
  dpkg -x "$home"/debs/linux-image*.deb "$home/kernel"
}

copy_with_libraries() {
  local root="$1" program="$2" library
  cp -L "$program" "$root/bin/"
  ldd "$program" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -Ln "$library" "$root$library"
  done
}

copy_library() {
  local root="$1" path
  path="$(ldconfig -p | awk -v name="$2" '$1 == name { print $NF; exit }')"
  [ -n "$path" ] || fail "this host has no $2"
  mkdir -p "$root$(dirname "$path")"
  cp -Ln "$path" "$root$path"
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
  local root tree version applet name
  root="$(mktemp -d)"
  tree="$(echo "$home"/kernel/lib/modules/*)"
  version="$(basename "$tree")"
  mkdir -p "$root"/{bin,sbin,proc,sys,dev,tmp,root,payload,lib64,"lib/modules/$version"}
  cp /bin/busybox "$root/bin/busybox"
  for applet in $(/bin/busybox --list); do
    [ "$applet" = busybox ] || ln -sf busybox "$root/bin/$applet"
  done
  for name in numactl cxl daxctl lstopo-no-graphics; do
    copy_with_libraries "$root" "$(command -v "$name")"
  done
  for name in "${libraries[@]}"; do copy_library "$root" "$name"; done
  for name in "${modules[@]}"; do copy_module "$root" "$tree" "$name"; done
  cp "$tree"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$version/"
  depmod -b "$root" "$version"
  install -m 755 "$here/guest/init" "$root/init"
  install -m 755 "$here/guest/cxl.sh" "$root/cxl.sh"
  # The kernel reads archives one after the other; each must end on a multiple of four bytes.
  (cd "$root" && find . | cpio -o -H newc --quiet | zstd -q -3) >"$home/initramfs"
  truncate -s %4 "$home/initramfs"
  rm -rf "$root"
}

[ -e "$home/ready" ] && [ "$home/ready" -nt "$here/guest/init" ] &&
  [ "$home/ready" -nt "$here/guest/cxl.sh" ] && exit 0
check_packages
mkdir -p "$home"
say "fetching QEMU and a kernel"
[ -e "$home/vmlinux" ] || {
  fetch_backports
  python3 "$here/unpack_kernel.py" "$home"/kernel/boot/vmlinuz-* "$home/vmlinux"
}
say "building the initramfs"
build_initramfs
touch "$home/ready"
say "ready: $(du -sm "$home" | cut -f1) MB in $home"
