#!/usr/bin/env bash
# Runs the fuzz targets, a minute each, and says what came of it. Fails if one of them crashes.
#
# TIERFEED_FUZZ_SECONDS     seconds per target (60)
# TIERFEED_FUZZ_TARGETS     names of targets, with spaces between (all of verification/fuzz/targets)
# TIERFEED_FUZZ_JOBS        targets at a time (2)
#
# The compiler is the stable one of the set-up: RUSTC_BOOTSTRAP lets it instrument code, and the
# runtime of AddressSanitizer comes with it. Whatever is built or found stays below target/fuzz; the
# inputs that were found are where the next run starts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${CARGO_TARGET_DIR:?is not set: start this through \`make fuzz\`}"

readonly cargo_fuzz_version=0.13.2
readonly tools=$CARGO_TARGET_DIR/cargo-fuzz
readonly work=$CARGO_TARGET_DIR/fuzz
readonly fixtures=dataset/tests/fixtures
readonly seconds=${TIERFEED_FUZZ_SECONDS:-60}
readonly jobs=${TIERFEED_FUZZ_JOBS:-2}
# An input is at most 64 KiB, so these are crashes: one allocation of 8 MiB, 1 GiB in all (the
# sanitizer, the inputs and what was freed included), ten seconds for one input.
readonly limits=(-max_len=65536 -malloc_limit_mb=8 -rss_limit_mb=1024 -timeout=10)
# As verification/fuzz/src/lib.rs has it.
readonly separator='\xff||fuzz||\xff'

say() { printf 'fuzz: %s\n' "$*" >&2; }

fail() {
  say "error: $1"
  exit 2
}

choose_targets() {
  local file name
  if [ -z "${TIERFEED_FUZZ_TARGETS:-}" ]; then
    for file in verification/fuzz/targets/*.rs; do basename "$file" .rs; done
    return
  fi
  for name in $TIERFEED_FUZZ_TARGETS; do
    [ -f "verification/fuzz/targets/$name.rs" ] || fail "no target $name; there are: $(cd verification/fuzz/targets && echo *.rs)"
    echo "$name"
  done
}

install_cargo_fuzz() {
  "$tools/bin/cargo-fuzz" --version 2>/dev/null | grep -qx "cargo-fuzz $cargo_fuzz_version" && return
  say "installing cargo-fuzz $cargo_fuzz_version into $tools"
  CARGO_TARGET_DIR=$tools/build cargo install --quiet --locked --root "$tools" cargo-fuzz \
    --version "$cargo_fuzz_version"
}

# Without its runtime what the sanitizer would find is not found; panics and limits are.
sanitizer() {
  if compgen -G "$(rustc --print target-libdir)/librustc-*_rt.asan.a" >/dev/null; then
    echo address
  else
    say 'this compiler has no AddressSanitizer: bytes outside of an allocation are not found'
    echo none
  fi
}

build() {
  # What is fuzzed has the dependencies that are shipped.
  cp Cargo.lock verification/fuzz/Cargo.lock
  # cargo-fuzz calls the cargo of this toolchain, which then takes the options of a nightly one.
  RUSTC_BOOTSTRAP=1 "$tools/bin/cargo-fuzz" build --fuzz-dir verification/fuzz --target-dir "$work" \
    --sanitizer "$(sanitizer)"
}

# seed TARGET NAME FILE...: a first input, of one file or of two with the separator between.
seed() {
  local into=$work/seeds/$1/$2
  cp "$3" "$into"
  if [ $# -gt 3 ]; then
    # The separator is a text of escapes.
    # shellcheck disable=SC2059
    { printf "$separator"; cat "$4"; } >>"$into"
  fi
}

seed_all() {
  local target=$1 file
  shift
  for file in "$@"; do seed "$target" "$(basename "$file")" "$file"; done
}

make_seeds() {
  local target=$1 file folder
  rm -rf "$work/seeds/$target"
  mkdir -p "$work/seeds/$target"
  case $target in
    tfrecord_index) seed "$target" records "$fixtures"/tfrecord/records.{idx,tfrecord} ;;
    webdataset_index) seed "$target" plain "$fixtures"/webdataset/plain.{idx,tar} ;;
    megatron)
      for file in "$fixtures"/megatron/*.idx; do
        seed "$target" "$(basename "$file")" "$file" "${file%.idx}.bin"
      done ;;
    mds | litdata)
      for folder in "$fixtures/$target"/*/; do
        for file in "$folder"*.mds "$folder"*.bin; do
          [ -f "$file" ] || continue
          seed "$target" "$(basename "$folder")-$(basename "$file")" "${folder}index.json" "$file"
        done
      done ;;
    hdf5) seed_all "$target" "$fixtures"/hdf5/*.index ;;
    webdataset) seed_all "$target" "$fixtures"/webdataset/*.tar ;;
    lmdb) seed_all "$target" "$fixtures"/lmdb/*.mdb ;;
    image) seed_all "$target" platform/images/tests/fixtures/* ;;
    array) seed_all "$target" "$fixtures"/npy/*.npy "$fixtures"/npz/*.npz ;;
    ffcv) seed_all "$target" "$fixtures"/ffcv/*.beton ;;
    index_file) seed_all "$target" "$fixtures"/index/*.index ;;
    job_file) seed_all "$target" configs/*.yaml ;;
    manifest) (cd "$fixtures/litdata" && find . -type f | sort) >"$work/seeds/$target/all" ;;
    peers)
      # A request for one sample, an answer with it, and one of another generation.
      printf '\4\0\1\x88\x27\1\7' >"$work/seeds/$target/ask"
      printf '\5\0\1\7\1\10\1' >"$work/seeds/$target/answer"
      printf '\6\0' >"$work/seeds/$target/other-generation" ;;
    *) seed_all "$target" "$fixtures/$target"/*."$target" ;;
  esac
  # Inputs that broke something once.
  if [ -d "$fixtures/broken/$target" ]; then
    seed_all "$target" "$fixtures/broken/$target"/*
  fi
}

# The words that a parser knows, so that the fuzzer need not guess them: texts and fields of its source.
make_dictionary() {
  local target=$1 name=${1%_index} source=dataset/src path
  local paths=()
  case $target in
    job_file) paths=(workload-analyzer/src/{job,job.rs,yaml,yaml.rs}) ;;
    manifest) paths=("$source/index/choose/manifest.rs") ;;
    peers) paths=(prefetcher/src/peers/message.rs) ;;
    image) paths=(platform/images/src) ;;
    array) paths=("$source"/format/{npy,npy.rs,npz,npz.rs}) ;;
    index_file) paths=("$source"/index/image "$source"/index/image.rs) ;;
    *) for path in "$source/format/$name" "$source/format/$name.rs"; do
        [ ! -e "$path" ] || paths+=("$path")
      done ;;
  esac
  {
    grep -rhoE '"[A-Za-z0-9_./:-]{2,40}"' "${paths[@]}" || true
    { grep -rhoE '^ +(pub )?[a-z_]+: ' "${paths[@]}" || true; } |
      sed -E 's/^ +(pub )?([a-z_]+: )$/"\2"/'
  } | LC_ALL=C sort -u >"$work/dictionaries/$target"
}

binary() { echo "$work/$(rustc -vV | sed -n 's/^host: //p')/release/$1"; }

# Fuzzes one target, prints one line about it, and says by its status whether it crashed.
fuzz() {
  local target=$1 log=$work/logs/$1.log found=$work/artifacts/$1/ status=0
  local options=("${limits[@]}")
  # It reads with threads, and what a thread frees when it ends is taken for a leak until then.
  [ "$target" != manifest ] || options+=(-detect_leaks=0)
  # A part of a WebP image claims its length in 24 bits, and its decoder allocates that before it reads.
  [ "$target" != image ] || options+=(-malloc_limit_mb=64)
  mkdir -p "$work/corpus/$target" "$work/dictionaries" "$work/logs" "$found"
  make_seeds "$target"
  make_dictionary "$target"
  nice "$(binary "$target")" "${options[@]}" -max_total_time="$seconds" -print_final_stats=1 \
    -dict="$work/dictionaries/$target" -artifact_prefix="$found" "$work/corpus/$target" "$work/seeds/$target" \
    </dev/null >"$log" 2>&1 || status=$?
  local executions coverage input outcome='no crash'
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
  coverage=$(sed -n 's/^#.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  if [ "$status" -ne 0 ]; then
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    outcome="CRASH, see $log"
    [ -z "$input" ] || outcome="CRASH, again with: $(binary "$target") ${options[*]} $input"
  fi
  printf '%-17s %10s executions  coverage %6s  %s\n' \
    "$target" "${executions:-?}" "${coverage:-?}" "$outcome"
  return "$status"
}

chosen=$(choose_targets)
mapfile -t targets <<<"$chosen"
install_cargo_fuzz
build
running=0
crashes=0
for target in "${targets[@]}"; do
  if [ "$running" -ge "$jobs" ]; then
    wait -n || crashes=$((crashes + 1))
    running=$((running - 1))
  fi
  fuzz "$target" &
  running=$((running + 1))
done
for (( ; running > 0; running--)); do
  wait -n || crashes=$((crashes + 1))
done
if [ "$crashes" -gt 0 ]; then
  say "$crashes of ${#targets[@]} targets crashed"
  exit 1
fi
say "no crash in ${#targets[@]} targets, $seconds s each"
