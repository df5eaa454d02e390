#!/usr/bin/env bash
# Makes the bundle that run.sh runs from on a machine with a driver and no compiler. --help tells more.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/launch/scripts/common.sh"

usage() {
  cat <<'END'
tests/gpu/bundle.sh OUT.tar.gz

Packs the programs of tests/gpu that build/ holds with the libraries that they are linked with (not glibc: the other
machine needs one at least as new as this one's) and run.sh into a folder `ashlar-gpu`. 64 MiB at most. There:

  tar xzf OUT.tar.gz && cd ashlar-gpu && ./run.sh

Needs a build with nvcc: ./check --only ptx, or cmake --build build --target gpu_conformance gpu_kernels ashlar.
ASHLAR_BUILD_DIR names another folder than build/.
END
}

case ${1-} in
  -h | --help) usage && exit 0 ;;
  '' | -*) fail 2 "expected a file to write, got '${1-}'; --help tells more" ;;
esac
out=$(realpath -m "$1")
# shellcheck disable=SC2154  # of common.sh
programs=("$build_dir"/tests/gpu/gpu_* "$build_dir/ashlar")
[ -x "${programs[0]}" ] || fail 2 "no programs in $build_dir/tests/gpu; --help tells how they are built"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/ashlar-gpu
mkdir -p "$bundle/bin" "$bundle/lib"
for program in "${programs[@]}"; do
  if [ ! -f "$program" ] || [ ! -x "$program" ]; then continue; fi
  cp "$program" "$bundle/bin/"
  strip "$bundle/bin/$(basename "$program")" 2>/dev/null || true
  # Not the C library, nor what the driver brings.
  ldd "$program" | awk '$3 ~ /^\// { print $3 }' |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libutil|ld-linux.*|libcuda|libnvidia.*)\.so' |
    while read -r library; do cp -Lu "$library" "$bundle/lib/"; done
done
cp "$root/tests/gpu/parts/"*.sh "$bundle/bin/"
cp "$root/configs/gpt2-124m.toml" "$bundle/"
cp "$root/tests/gpu/run.sh" "$bundle/run.sh"
git -C "$root" rev-parse HEAD >"$bundle/commit" 2>/dev/null || echo unknown >"$bundle/commit"
tar -C "$work" -czf "$out" ashlar-gpu
bytes=$(stat -c %s "$out")
[ "$bytes" -le $((64 << 20)) ] || fail 2 "the bundle has $((bytes >> 20)) MiB, more than 64: leave something out"
printf '%s: %d KiB, %s\n' "$out" $((bytes >> 10)) "$(find "$bundle/bin" -type f -printf '%f ')"
