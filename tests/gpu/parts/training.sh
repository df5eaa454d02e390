#!/usr/bin/env bash
# training.sh DIR STEPS: trains a small model on the CPU and on the GPU, and compares each loss.
#   fp64: two orders of summation differ by 1e-16 of a value, and by 1e-11 of a gradient (tests/layouts); STEPS updates may
#   make a millionth of it.
#   bf16: as far from fp32 as the CPU's own bf16 run is, within a factor of two in the mean over all steps.
# Exit codes: 0 so it is, 1 not, or a run failed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
steps=${ASHLAR_GPU_STEPS:-$2}
mkdir -p "$1" && cd "$1"
write_text text.txt
# shellcheck disable=SC2154  # of common.sh
"$ashlar" data build text.txt --out data --tokenizer characters >data.log
write_config run.toml "$steps"
for run in cpu-fp64 cuda-fp64 cpu-fp32 cpu-bf16 cuda-bf16; do
  train "$run" run.device="${run%-*}" run.dtype="${run#*-}"
  [ "$(losses "$run" | wc -l)" -eq "$steps" ] || { printf '%s has not %d losses\n' "$run" "$steps" && exit 1; }
done

read -r fp64 _ < <(distance cpu-fp64 cuda-fp64)
read -r _ own < <(distance cpu-fp32 cpu-bf16)
read -r _ gpu < <(distance cpu-fp32 cuda-bf16)
printf '%d steps: fp64 differs by %s at most (1e-6 allowed); bf16 is %s from fp32 in the mean, on the CPU %s\n' \
  "$steps" "$fp64" "$gpu" "$own"
awk -v fp64="$fp64" -v gpu="$gpu" -v own="$own" 'BEGIN { exit !(fp64 <= 1e-6 && gpu <= 2 * own) }'
