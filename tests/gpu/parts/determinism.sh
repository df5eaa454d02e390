#!/usr/bin/env bash
# determinism.sh DIR STEPS: the same bf16 run twice on the GPU, with the algorithms that the first one chose: every loss and
# gradient norm, and every byte of weights and optimizer state, must be the same. Exit codes: 0 so it is, 1 not.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
steps=${ASHLAR_GPU_STEPS:-$2}
mkdir -p "$1" && cd "$1"
write_text text.txt
# shellcheck disable=SC2154  # of common.sh
"$ashlar" data build text.txt --out data --tokenizer characters >data.log
write_config run.toml "$steps"
words=(run.device=cuda run.dtype=bf16 dropout.resid=0.1 dropout.attn=0.1)
train run "${words[@]}"
mv run first
mkdir run
[ ! -f first/choices.json ] || cp first/choices.json run/
train run "${words[@]}"
# Of a row all but times, memory and clocks.
exact() { sed -n 's/.*\("step":[0-9]*\),.*\("loss":[^,}]*\).*\("grad_norm":[^,}]*\).*/\1 \2 \3/p' "$1/metrics.jsonl"; }
[ "$(exact run | wc -l)" -eq "$steps" ] || { echo 'not every step has a row' && exit 1; }
cmp <(exact first) <(exact run) || { echo 'losses or gradient norms differ' && exit 1; }
files=0
for file in first/checkpoints/*/*.safetensors; do
  cmp "$file" "run/${file#first/}" || { printf '%s differs\n' "${file#first/}" && exit 1; }
  files=$((files + 1))
done
[ "$files" -gt 0 ] || { echo 'no checkpoint was saved' && exit 1; }
printf '%d steps twice: equal losses, gradient norms and bytes of %d files of weights and state\n' "$steps" "$files"
