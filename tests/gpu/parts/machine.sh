# shellcheck shell=bash
# What run.sh, which sources it, asks of the machine: its driver, and the libraries that no bundle has room for.

# driver_of_machine: the driver's version, like 580.65.06, or nothing.
driver_of_machine() {
  local driver
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
  [[ $driver =~ ^[0-9]+\. ]] ||
    driver=$(grep -oE '[0-9]+\.[0-9]+\.?[0-9]*' /proc/driver/nvidia/version 2>/dev/null | head -n 1)
  printf '%s' "$driver"
}

# old_driver BUNDLE CUDA LEAST ARGUMENTS...: where the driver is too old for this bundle, goes on with the bundle for
# CUDA 12 beside it, or says what to do and exits with 3. Returns otherwise.
old_driver() {
  local bundle=$1 cuda=$2 least=$3 driver what
  shift 3
  driver=$(driver_of_machine)
  if [ -z "$least" ] || [ -z "$driver" ] || [ "${driver%%.*}" -ge "$least" ]; then return; fi
  what="the driver is $driver, and this bundle (CUDA $cuda) needs $least or newer"
  if [ -x "$bundle-cuda12/run.sh" ]; then
    printf '%s: going on with %s\n' "$what" "$bundle-cuda12"
    exec "$bundle-cuda12/run.sh" "$@"
  fi
  printf 'no GPU: %s: ' "$what"
  [ "${cuda%%.*}" -le 12 ] || printf 'unpack beside it the bundle -cuda12, which bundle.sh makes where nvcc 12 is, '
  printf 'update the driver, or name the folder of the package cuda-compat-%s first in LD_LIBRARY_PATH\n' "${cuda/./-}"
  exit 3
}

# The programs look for libraries in more folders than the linker does: wheels of Python too.
# library VARIABLE NAME WITHOUT FILES...: names the first of FILES that is there by the variable, unless it is set.
library() {
  local variable=$1 name=$2 without=$3 file
  shift 3
  if [ -z "${!variable-}" ]; then
    for file in $(ldconfig -p 2>/dev/null | awk -v name="/${1##*/}$" '$NF ~ name { print $NF }') "$@"; do
      [ -e "$file" ] && export "$variable=$file" && break
    done
  fi
  printf '%s: %s\n' "$name" "${!variable:-not found: $without; $variable=FILE names one}"
}
# wheels FOLDER FILE: FILE in NVIDIA's wheels of each Python.
wheels() {
  local prefix
  for prefix in "${VIRTUAL_ENV:-/nowhere}" "${CONDA_PREFIX:-/nowhere}" "${HOME:-/nowhere}/.local" /usr/local /usr; do
    printf '%s\n' "$prefix"/lib/python3*/{site,dist}-packages/nvidia/"$1/lib/$2"
  done
}
# libraries MAJOR: names those of this CUDA to the programs.
libraries() {
  local major=${1:-13} wheel
  local folders=("${CUDA_HOME:-/nowhere}/lib64" /usr/local/cuda/lib64 /usr/local/cuda-"$major"*/lib64)
  wheel=cu$major
  [ "$major" != 12 ] || wheel=cublas
  # shellcheck disable=SC2046  # one word a file
  library ASHLAR_CUBLASLT cublasLt 'parts that multiply matrices fail' "${folders[@]/%//libcublasLt.so.$major}" \
    $(wheels "$wheel" "libcublasLt.so.$major")
  # shellcheck disable=SC2046
  library ASHLAR_CUDNN cuDNN 'bench_cudnn fails, and attention is Ashlar'"'"'s own elsewhere' \
    "${folders[@]/%//libcudnn.so.9}" $(wheels cudnn libcudnn.so.9)
  # shellcheck disable=SC2046
  library ASHLAR_NCCL NCCL 'parts on several ranks fail' "${folders[@]/%//libnccl.so.2}" $(wheels nccl libnccl.so.2)
}
