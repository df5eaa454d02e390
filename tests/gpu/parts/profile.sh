#!/usr/bin/env bash
# profile.sh DIR: what Nsight Compute says of the six kernels that take most of a step by kernels/cuda/SPEED.md, beside
# the products: DIR/kernels.csv, and DIR/kernels.ncu-rep for its user interface. They run in one block of Qwen2.5 0.5B.
# Skipped where there is no ncu, or the system keeps the counters to itself.
# Exit codes: 0 all six were profiled, 1 one was not, 77 skipped.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
kernels=(forward_kernel keys_kernel queries_kernel loss_stats_and_grad_kernel activation_backward_kernel norm_backward_kernel)
for ncu in "$(command -v ncu)" /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu; do
  [ ! -x "$ncu" ] || break
done
[ -x "$ncu" ] || skip 'Nsight Compute (ncu) is not installed here'
mkdir -p "$1" && cd "$1" || exit 1
write_qwen block.toml 896 1 14 2 4864
read -ra more <<<"${ASHLAR_GPU_WORDS-}"  # of tests: other sizes
names=$(IFS='|' && printf '%s' "${kernels[*]}")
# The first launches of each are enough: all of a step's are of one shape.
# shellcheck disable=SC2154  # ashlar: of common.sh
if ! "$ncu" --kernel-name "regex:^($names)\$" --launch-count 24 --set full --force-overwrite -o kernels \
  "$ashlar" bench step block.toml run.device=cuda run.dtype=bf16 train.attention=own train.sequence_length=1024 \
  train.global_batch=16 train.micro_batch=16 "${more[@]}" --steps 1 --warmup 0 >ncu.log 2>&1; then
  ! grep -q ERR_NVGPUCTRPERM ncu.log || skip 'the counters are for the administrator alone here (ERR_NVGPUCTRPERM)'
  grep -v '^[[:space:]]*$' ncu.log | tail -n 5
  exit 1
fi
"$ncu" --import kernels.ncu-rep --csv --page raw >kernels.csv 2>>ncu.log || { tail -n 1 ncu.log && exit 1; }
missing=''
for kernel in "${kernels[@]}"; do
  grep -qE "[\":]${kernel}[<\"(]" kernels.csv || missing+=" $kernel"
done
found=$((${#kernels[@]} - $(wc -w <<<"$missing")))
printf '%d kernels profiled into kernels.csv; missing:%s\n' "$found" "${missing:- none}"
[ -z "$missing" ]
