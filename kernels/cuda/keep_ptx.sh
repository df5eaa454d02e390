#!/bin/sh
# keep_ptx.sh FOLDER NVCC ARGUMENT...: runs nvcc, which compiles a file of a kernels/cuda, for CMake
# (CUDA_COMPILER_LAUNCHER). Keeps its PTX as FOLDER/TARGET/NAME.ptx and what ptxas says of registers and spills as
# FOLDER/NAME.resources; the NAME of kernels/cuda/attention/forward.cu is attention_forward.cu.
set -eu
folder=$1
shift
for argument; do
  case $argument in */kernels/cuda/*.cu) source=$argument ;; esac
done
name=$(printf '%s' "${source##*/kernels/cuda/}" | tr / _)
stem=$(basename "$source" .cu)
kept=$folder/kept/$name  # nvcc's intermediate files: tens of MiB, of which only the PTX is kept
rm -rf "$kept"
mkdir -p "$kept"
"$@" -Xptxas -v --keep --keep-dir "$kept" 2>"$folder/$name.resources" || {
  cat "$folder/$name.resources" >&2
  exit 1
}
if [ -e "$kept/$stem.ptx" ]; then  # with a single target, nvcc names no target in the file name
  for argument; do
    case $argument in *arch=compute_*) target=${argument#*arch=} ;; esac
  done
  mv "$kept/$stem.ptx" "$kept/$stem.${target%%,*}.ptx"
fi
for ptx in "$kept/$stem".compute_*.ptx; do
  target=${ptx#"$kept/$stem".}
  mkdir -p "$folder/${target%.ptx}"
  mv "$ptx" "$folder/${target%.ptx}/$name.ptx"
done
rm -rf "$kept"
