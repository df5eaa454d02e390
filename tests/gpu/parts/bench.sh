#!/usr/bin/env bash
# bench.sh ATTENTION: steps of the models that kernels/cuda/SPEED.md predicts, in its configuration (bf16, 512 sequences
# of 1024 tokens a step, what fits in 80 GB), with cuDNN's attention or Ashlar's own: the log and a line of JSON for each
# model as it is measured, so that what is cut off has the models before it.
# Exit codes: 0 all ran, 1 one did not, and the last line says which.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
. "$(dirname "${BASH_SOURCE[0]}")/clocks.sh"
attention=$1
# shellcheck disable=SC2154  # here, ashlar: of common.sh
bundle=$here/.. program=$ashlar
work=$(mktemp -d)
# A child that is told to end before it has become its program still has these.
trap '[ "$BASHPID" != $$ ] || { clocks_end; rm -rf "$work"; }' EXIT
trap 'exit 143' TERM

cp "$bundle/gpt2-124m.toml" "$work/gpt2-124m.toml"
write_qwen "$work/qwen2.5-0.5b.toml" 896 24 14 2 4864
write_qwen "$work/qwen2.5-1.5b.toml" 1536 28 12 2 8960
write_qwen "$work/qwen2.5-3b.toml" 2048 36 16 2 11008

ran='' failed=''
# bench NAME MICRO_BATCH STEPS: fails if the step does.
bench() {
  local words=(run.device=cuda run.dtype=bf16 "train.attention=$attention" train.sequence_length=1024
    train.global_batch=512 "train.micro_batch=$2")
  local line more
  read -ra more <<<"${ASHLAR_GPU_WORDS-}"  # of tests: other sizes
  words+=("${more[@]}" --steps "$3" --warmup 1 --json)
  clocks_watch "$work/clocks"
  if line=$("$program" bench step "$work/$1.toml" "${words[@]}" 2>"$work/error"); then
    # With the log: whose attention, and how many algorithms cublasLt offered for each product.
    sed "s/^/$1: /" "$work/error"
    clocks_end
    printf '%s: %s\n' "$1" "$(clocks_summary text "$work/clocks")"
    printf '%s %s\n' "$1" "$line"
    ran+=" $1"
  else
    clocks_end
    printf '%s failed: %s\n' "$1" "$(tail -n 1 "$work/error")"
    failed+=" $1"
    return 1
  fi
}
bench gpt2-124m 16 5
bench qwen2.5-0.5b 16 5
bench qwen2.5-1.5b 16 4
# The prediction fits by a hundredth of a percent: where it does not, half of it is measured too.
bench qwen2.5-3b 8 3 || bench qwen2.5-3b 4 3
printf 'attention %s: measured%s; failed%s\n' "$attention" "${ran:- none}" "${failed:- none}"
[ -z "$failed" ]
