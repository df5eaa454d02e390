#!/usr/bin/env bash
# Makes the bundle that run.sh runs from on a machine with a driver and no compiler. --help tells more.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/launch/scripts/common.sh"

usage() {
  cat <<'END'
tests/gpu/bundle.sh OUT.tar.xz

Packs the programs of tests/gpu that build/ holds with the libraries that they are linked with (not glibc: the other
machine needs one at least as new as this one's) and run.sh into a folder `ashlar-gpu`. 38 MiB at most. There:

  tar xf OUT.tar.xz && cd ashlar-gpu && ./run.sh

Needs a build with nvcc: ./check --only ptx, or
cmake --build build --target gpu_conformance gpu_kernels gpu_nccl ashlar.
ASHLAR_BUILD_DIR names another folder than build/.

A build by nvcc 13 needs driver 580 or newer on the other machine. Where nvcc 12 is found too ($CUDA12_HOME, $CUDA_HOME,
/usr/local/cuda-12*, $CONDA_PREFIX), the programs are also built by it, into build-cuda12/, and packed as
OUT-cuda12.tar.xz, which needs 525. Unpacked beside the other, its run.sh goes on with it where the driver is too old.
END
}

case ${1-} in
  -h | --help) usage && exit 0 ;;
  '' | -*) fail 2 "expected a file to write, got '${1-}'; --help tells more" ;;
esac
out=$(realpath -m "$1")
[[ $out == *.tar.xz ]] || fail 2 "expected a name that ends with .tar.xz, got '$1'"
command -v xz >/dev/null || fail 2 "expected xz; install the package xz-utils"
# linked PROGRAM...: the libraries that they are linked with, but the C library and what the driver brings.
linked() {
  ldd "$@" 2>/dev/null | awk '$3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libutil|ld-linux.*|libcuda|libnvidia.*)\.so' || true
}

# pack_mpi BUILD FOLDER: Debian's Open MPI 4 with its plug-ins, and env.sh, by which it works in any folder. Where this
# machine has another one the bundle has none.
pack_mpi() {
  local build=$1 to=$2 system plugins
  system=$(dirname "$(linked "$build/tests/gpu/gpu_nccl" | grep '/libmpi\.so')")
  plugins=$system/openmpi/lib/openmpi3
  if [ ! -d "$plugins" ] || [ ! -d "$system/pmix2/lib/pmix" ] || [ ! -x /usr/bin/orterun ]; then
    printf 'no MPI in the bundle: expected Open MPI 4 of Debian 12 in %s\n' "$system"
    return 0
  fi
  mkdir -p "$to"/{bin,lib,plugins,pmix,share,etc}
  cp -L /usr/bin/orterun "$to/bin/mpirun"
  cp -L /usr/bin/orted "$to/bin/"
  linked "$build/tests/gpu/gpu_nccl" /usr/bin/orterun "$plugins"/*.so | while read -r library; do
    cp -Lu "$library" "$to/lib/"
  done
  cp -L "$system"/pmix2/lib/libpmix.so.2 "$to/lib/"
  cp -L "$plugins"/mca_*.so "$to/plugins/"
  cp -L "$system"/pmix2/lib/pmix/*.so "$to/pmix/"
  cp -rL /usr/share/openmpi /usr/share/pmix* "$to/share/" 2>/dev/null || true
  cp -rL /etc/openmpi "$to/etc/"
  cat >"$to/env.sh" <<'END'
mpi=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LD_LIBRARY_PATH=$mpi/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OPAL_PREFIX=$mpi OPAL_BINDIR=$mpi/bin OPAL_LIBDIR=$mpi/lib OPAL_PKGLIBDIR=$mpi/plugins OPAL_DATADIR=$mpi/share
export OPAL_PKGDATADIR=$mpi/share/openmpi OPAL_SYSCONFDIR=$mpi/etc/openmpi
export PMIX_INSTALL_PREFIX=$mpi PMIX_LIBDIR=$mpi/lib PMIX_PKGLIBDIR=$mpi/pmix PMIX_PKGDATADIR=$mpi/share/pmix
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
END
}

# release NVCC: its release, like 12.8; nothing if it does not run.
release() { "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p' || true; }
# The nvcc that a build folder was configured with.
nvcc_of() { sed -n 's/^ASHLAR_NVCC:[A-Z]*=//p' "$1/CMakeCache.txt" 2>/dev/null || true; }
# The newest nvcc of CUDA 12, or nothing. NVIDIA's wheels of CUDA 12 hold ptxas alone.
nvcc_12() {
  local nvcc
  for nvcc in "${CUDA12_HOME:-/nowhere}/bin/nvcc" "${CUDA_HOME:-/nowhere}/bin/nvcc" \
    $(printf '%s\n' /usr/local/cuda-12*/bin/nvcc | sort -rV) "${CONDA_PREFIX:-/nowhere}/bin/nvcc"; do
    [[ $(release "$nvcc") == 12.* ]] && printf '%s' "$nvcc" && return
  done
  return 0
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# pack BUILD FOLDER FILE: the bundle of a build folder.
pack() {
  local build=$1 bundle=$work/$2 file=$3 program cuda bytes
  local programs=("$build"/tests/gpu/gpu_* "$build/ashlar")
  [ -x "${programs[0]}" ] || fail 2 "no programs in $build/tests/gpu; --help tells how they are built"
  mkdir -p "$bundle/bin" "$bundle/lib"
  for program in "${programs[@]}"; do
    if [ ! -f "$program" ] || [ ! -x "$program" ]; then continue; fi
    cp "$program" "$bundle/bin/"
    strip "$bundle/bin/$(basename "$program")" 2>/dev/null || true
    linked "$program" | while read -r library; do cp -Lu "$library" "$bundle/lib/"; done
  done
  [ ! -x "$build/tests/gpu/gpu_nccl" ] || pack_mpi "$build" "$bundle/mpi"
  cp "$root/tests/gpu/parts/"*.sh "$bundle/bin/"
  cp "$root/configs/gpt2-124m.toml" "$bundle/"
  cp "$root/tests/gpu/run.sh" "$bundle/run.sh"
  git -C "$root" rev-parse HEAD >"$bundle/commit" 2>/dev/null || echo unknown >"$bundle/commit"
  # What run.sh compares the other machine's driver with: NVIDIA's table of minor version compatibility.
  cuda=$(release "$(nvcc_of "$build")")
  case $cuda in
    13.*) echo "$cuda 580" >"$bundle/needs" ;;
    12.*) echo "$cuda 525" >"$bundle/needs" ;;
  esac
  # The programs share most of their machine code; a dictionary as large as all of them finds it again, where gzip's, of
  # 32 KiB, makes the bundle twice as large.
  tar -C "$work" -cf - "$2" | xz -T1 --lzma2=preset=1,dict=128MiB >"$file"
  bytes=$(stat -c %s "$file")
  [ "$bytes" -le $((38 << 20)) ] ||
    fail 2 "the bundle $file has $((bytes >> 20)) MiB, more than 38: leave something out"
  printf '%s: %d KiB, %s\n' "$file" $((bytes >> 10)) "$(find "$bundle/bin" -type f -printf '%f ')"
}

# shellcheck disable=SC2154  # of common.sh
pack "$build_dir" ashlar-gpu "$out"
nvcc=$(nvcc_12)
if [[ $(release "$(nvcc_of "$build_dir")") == 12.* ]]; then
  exit 0
elif [ -z "$nvcc" ]; then
  printf 'no nvcc of CUDA 12 here, so no bundle for drivers before 580: --help tells where it is looked for\n'
else
  printf 'building by %s for drivers before 580, into %s\n' "$nvcc" "$build_dir-cuda12"
  export CUDA_HOME=${nvcc%/bin/nvcc}
  # shellcheck disable=SC2034  # of common.sh
  settings=(ASHLAR_NVCC="$nvcc" ASHLAR_UNITY=ON)
  build "$build_dir-cuda12" release gpu_conformance gpu_kernels gpu_nccl ashlar
  pack "$build_dir-cuda12" ashlar-gpu-cuda12 "${out%.tar.xz}-cuda12.tar.xz"
fi
