#!/usr/bin/env bash
# Puts a CUDA compiler into a folder, from NVIDIA's pip wheels: no driver, no GPU and no root needed. --help tells more.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/launch/scripts/common.sh"

usage() {
  cat <<'END'
launch/scripts/cuda_toolkit.sh DIR [--libraries]

Installs nvcc 13.0 with its headers and static runtime into DIR (110 MB to fetch, 270 MB on disk); CMake finds it through
CUDA_HOME=DIR. A folder that this script has filled before is left as it is; any other that is not empty is refused.

  --libraries   also cuBLASLt, NCCL and cuDNN with their headers (2 GB): what a GPU loads at run time, and what the tests
                of the stand-ins need
  --help        this text

Needs python3 with pip (Debian: python3-pip).
END
}

dir= libraries=0
while [ $# -gt 0 ]; do
  case $1 in
    --libraries) libraries=1 ;;
    -h | --help) usage && exit 0 ;;
    -*) fail 2 "unknown argument '$1'; --help lists what there is" ;;
    *)
      [ -z "$dir" ] || fail 2 "expected one folder, got '$dir' and '$1'"
      dir=$1
      ;;
  esac
  shift
done
[ -n "$dir" ] || fail 2 "expected a folder to install into; --help tells more"

# One release throughout: headers of one and a compiler of another may disagree in silence.
wheels=(nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl)
wanted=("${wheels[@]/%/==13.0.*}")
if [ "$libraries" -eq 1 ]; then
  wanted+=('nvidia-cublas==13.0.*' 'nvidia-nccl-cu13==2.28.*' 'nvidia-cudnn-cu13==9.*' 'nvidia-cudnn-frontend')
fi

# The last thing written: without it a folder is what an interrupted run has left.
complete=$dir/.complete
if [ -f "$complete" ] && [ "$(cat "$complete")" = "${wanted[*]}" ]; then
  echo "$dir is complete"
  exit 0
fi
if [ -d "$dir" ] && [ -n "$(ls -A "$dir")" ] && [ ! -d "$dir/.wheels" ]; then
  fail 2 "$dir is not empty and not of this script; name another folder, or empty it"
fi
python3 -m pip --version >/dev/null 2>&1 || fail 2 "python3 with pip is missing; as root: apt-get install python3-pip"

rm -rf "$dir"
mkdir -p "$dir/.wheels" || fail 6 "cannot make the folder $dir"
log=$dir/install.log
if ! python3 -m pip install --no-deps --no-cache-dir --disable-pip-version-check --target "$dir/.wheels" \
  "${wanted[@]}" </dev/null >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  fail 2 "pip could not install ${wanted[*]} (its last lines are above, all of them in $log)"
fi

# The layout of NVIDIA's own installer: bin, include, lib64, nvvm, with the names that linkers look for.
for wheel in "$dir"/.wheels/nvidia/*/; do
  for part in bin include lib nvvm; do
    if [ -d "$wheel$part" ]; then cp -al "$wheel$part" "$dir/"; fi
  done
done
ln -sfn lib "$dir/lib64"
for library in "$dir"/lib/*.so.*; do
  [ -e "$library" ] || continue
  name=${library##*/}
  [ -e "$dir/lib/${name%%.so.*}.so" ] || ln -s "$name" "$dir/lib/${name%%.so.*}.so"
done
for needed in bin/nvcc bin/ptxas nvvm/bin/cicc include/cuda_runtime.h lib64/libcudart_static.a; do
  [ -e "$dir/$needed" ] || fail 70 "the wheels brought no $needed; look into $log"
done
"$dir/bin/nvcc" --version | tail -n 2
printf '%s' "${wanted[*]}" >"$complete"
