#!/usr/bin/env bash
# two_gpus.sh data|tensor|bandwidth DIR STEPS: what one GPU cannot tell. Skipped where there are fewer than two.
#   data, tensor: STEPS steps in fp64 on one GPU and on two, which differ by the order of sums alone; then the rate of
#   GPT-2 124M on two.
#   bandwidth: bytes a second of each collective operation over NCCL, as one line of JSON.
# Exit codes: 0 so it is, 1 not, 77 skipped.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
. "$(dirname "${BASH_SOURCE[0]}")/clocks.sh"
kind=$1 steps=$3
gpus=$(number_of_gpus || true)
[ "$gpus" -ge 2 ] || skip "this needs two GPUs, and programs see $gpus"
mkdir -p "$2" && cd "$2"
# shellcheck disable=SC2154  # here, ashlar: of common.sh
if [ "$kind" = bandwidth ]; then
  on_ranks 2 "$ashlar" bench comm --device cuda --dtype bf16 --largest "${ASHLAR_GPU_LARGEST:-268435456}" \
    --seconds "${ASHLAR_GPU_SECONDS:-0.3}" --json
  exit
fi
write_text text.txt
"$ashlar" data build text.txt --out data --tokenizer characters >data.log
write_config run.toml "$steps"
words=(run.device=cuda run.dtype=fp64)
train one "${words[@]}"
train_on 2 two "${words[@]}" "mesh.$kind=2"
[ "$(losses two | wc -l)" -eq "$steps" ] || { echo 'not every step has a loss' && exit 1; }
read -r most _ < <(distance one two)
printf '%s 2: %d steps differ from one GPU by %s at most (1e-6 allowed)\n' "$kind" "$steps" "$most"
awk -v most="$most" 'BEGIN { exit !(most <= 1e-6) }'
trap '[ "$BASHPID" != $$ ] || clocks_end' EXIT
clocks_watch clocks
read -ra more <<<"${ASHLAR_GPU_WORDS-}"  # of tests: other sizes
# shellcheck disable=SC2154
on_ranks 2 "$ashlar" bench step "$here/../gpt2-124m.toml" run.device=cuda run.dtype=bf16 train.sequence_length=1024 \
  train.global_batch=512 train.micro_batch=16 "mesh.$kind=2" "${more[@]}" --warmup 1 \
  --steps "${ASHLAR_GPU_BENCH_STEPS:-5}" --json
clocks_end
printf '%s 2: %s steps differ from one GPU by %s; %s\n' "$kind" "$steps" "$most" "$(clocks_summary text clocks)"
