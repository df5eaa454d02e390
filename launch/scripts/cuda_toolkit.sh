#!/usr/bin/env bash
# Installs a CUDA compiler, or headers that build with one, into a folder from NVIDIA's pip wheels. Needs no driver, GPU
# or root. See --help.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/launch/scripts/common.sh"

usage() {
  cat <<'END'
launch/scripts/cuda_toolkit.sh DIR [--libraries | --cudnn-frontend]

Installs nvcc 13.0 with its headers and static runtime into DIR (105 MB to download, 270 MB on disk). A DIR that this
script has filled keeps its content if a later download fails. Any other DIR that is not empty is refused.

  --libraries   also cuBLASLt, NCCL and cuDNN with their headers (2 GB on disk in all)
  --cudnn-frontend
                only the headers of cuDNN's C++ frontend (12 MB to download), for a machine that has the toolkit and
                cuDNN; build with CUDNN_FRONTEND=DIR to use them
  --help        this text

Needs python3 with pip (Debian: python3-pip).
END
}

dir= libraries=0 frontend=0
while [ $# -gt 0 ]; do
  case $1 in
    --libraries) libraries=1 ;;
    --cudnn-frontend) frontend=1 ;;
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

# All wheels have one CUDA release: a compiler with the headers of another release may compile wrongly without an error.
wheels=(nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl)
wanted=("${wheels[@]/%/==13.0.*}")
frontend_wheel='nvidia-cudnn-frontend==1.32.*'
if [ "$libraries" -eq 1 ]; then
  wanted+=('nvidia-cublas==13.0.*' 'nvidia-nccl-cu13==2.28.*' 'nvidia-cudnn-cu13==9.*' "$frontend_wheel")
fi
if [ "$frontend" -eq 1 ]; then
  [ "$libraries" -eq 0 ] || fail 2 "--libraries includes --cudnn-frontend; give only one of them"
  wanted=("$frontend_wheel")
fi

# The wheels installed in the folder. In this list the libraries follow the compiler, so a folder with libraries is also
# complete for a request without them.
holds=$(cat "$dir/.complete" 2>/dev/null || true)
if [[ $holds == "${wanted[*]}"* ]]; then
  echo "$dir is complete"
  exit 0
fi
if [ -z "$holds" ] && [ -d "$dir" ] && [ -n "$(ls -A "$dir")" ]; then
  fail 2 "$dir is not empty and was not filled by this script; name another folder, or empty it"
fi
python3 -m pip --version >/dev/null 2>&1 || fail 2 "python3 with pip is missing; as root: apt-get install python3-pip"

# Installs beside the folder and renames at the end, so that a failure leaves the folder unchanged.
new=${dir%/}.partial
rm -rf "$new"
mkdir -p "$new/.wheels" || fail 6 "cannot make the folder $new"
log=$new/install.log
if ! python3 -m pip install --no-deps --no-cache-dir --disable-pip-version-check --target "$new/.wheels" \
  "${wanted[@]}" </dev/null >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  fail 2 "pip could not install ${wanted[*]} (its last lines are above, all of them in $log)"
fi

# Arranges the files as NVIDIA's installer does: bin, include, lib64, nvvm. Links the library names that linkers look
# for.
for wheel in "$new"/.wheels/nvidia/*/ "$new"/.wheels/; do
  for part in bin include lib nvvm; do
    if [ -d "$wheel$part" ]; then cp -al "$wheel$part" "$new/"; fi
  done
done
[ ! -d "$new/lib" ] || ln -sfn lib "$new/lib64"
for library in "$new"/lib/*.so.*; do
  [ -e "$library" ] || continue
  name=${library##*/}
  [ -e "$new/lib/${name%%.so.*}.so" ] || ln -s "$name" "$new/lib/${name%%.so.*}.so"
done
needed=(bin/nvcc bin/ptxas nvvm/bin/cicc include/cuda_runtime.h lib64/libcudart_static.a)
if [ "$libraries" -eq 1 ]; then
  needed+=(include/{cublasLt,nccl,cudnn,cudnn_frontend}.h lib64/lib{cublasLt,nccl,cudnn}.so)
fi
[ "$frontend" -eq 0 ] || needed=(include/cudnn_frontend.h)
for file in "${needed[@]}"; do
  [ -e "$new/$file" ] || fail 70 "expected $file in the downloaded wheels, got none; see $log"
done
[ "$frontend" -eq 1 ] || "$new/bin/nvcc" --version | tail -n 2
printf '%s' "${wanted[*]}" >"$new/.complete"
rm -rf "$dir"
mv "$new" "$dir"
