#!/usr/bin/env bash
# equal_bits.sh OLD_BINARY NEW_BINARY [PATTERN]: short trainings with both; see README.md. Exit code 1 when one differs.
set -euo pipefail
[ $# -ge 2 ] || { echo 'usage: equal_bits.sh OLD_BINARY NEW_BINARY [PATTERN]' >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2") pattern=${3:-.}
root=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One line a training: configuration, ranks, overrides.
cases() {
  local small='train.sequence_length=32 vocab.pad_to=8 model.d_model=64 train.global_batch=16 train.micro_batch=2
    train.eval_batches=2 train.eval_every=0 train.steps=4 schedule.warmup_steps=2'
  local forms=("quickstart data.path=$work/bytes model.n_layers=4 model.n_kv_heads=2"
    "shakespeare-char data.path=$work/characters model.d_ff=256"
    "gpt2-124m data.path=$work/bytes vocab.size=257 model.n_heads=4 model.d_ff=256 model.n_layers=4
     pos.max_positions=32 dropout.resid=0.1 dropout.attn=0.1 dropout.embed=0.1 log.stats_every=2")
  local form name
  for form in "${forms[@]}"; do
    name=${form%% *} form=$(tr -s ' \n' ' ' <<<"${form#* } $small")
    while read -r ranks layout; do echo "$name $ranks $form $layout"; done <<'LAYOUTS'
1
1 run.dtype=fp64
1 train.recompute=block run.dtype=fp32 block.topology=parallel
2 mesh.tensor=2
2 mesh.data=2
2 mesh.pipeline=2
2 mesh.tensor=2 mesh.sequence_parallel=true run.dtype=fp64 train.recompute=selective
2 mesh.pipeline=2 mesh.schedule=zb-h1 run.dtype=fp64
4 mesh.tensor=2 mesh.data=2
4 mesh.tensor=4
4 mesh.data=4 run.dtype=bf16
4 mesh.pipeline=2 mesh.tensor=2 mesh.sequence_parallel=true
4 mesh.pipeline=2 mesh.data=2 mesh.schedule=interleaved mesh.virtual_stages=2
8 mesh.pipeline=2 mesh.data=2 mesh.tensor=2 mesh.sequence_parallel=true mesh.schedule=zb-h1 run.dtype=fp64 block.topology=parallel
LAYOUTS
  done
}

# train BINARY CONFIG RANKS OVERRIDES...: trains in $work/run, anew or from its newest checkpoint; prints what it comes to.
train() {
  local binary=$1 config=$2 ranks=$3 code=0
  shift 3
  "$binary" launch -np "$ranks" train "$root/configs/$config.toml" "run.dir=$work/run" run.threads=1 \
    checkpoint.every=2 "$@" >"$work/log" 2>&1 || code=$?
  echo "exit code $code"
  [ "$code" = 0 ] || { grep -v mpirun "$work/log" | tail -2; return; }
  grep -oE '"(step|loss|grad_norm|z_loss|mean_log_z|max_log_z|max_logit|val_loss|weight_rms|grad_rms|output_rms)":[^,}]*' \
    <(grep -v save_ms "$work/run/metrics.jsonl")
  (cd "$work/run/checkpoints" && find . -name '*.safetensors' | sort | xargs sha256sum)
}

equal=0 differ=0
# compare CASE FILE: with what the old program came to.
compare() {
  if cmp -s "$work/old" "$2"; then
    equal=$((equal + 1))
  else
    differ=$((differ + 1))
    echo "differs: $1"
    diff "$work/old" "$2" | head -6 || true
  fi
}

cat "$root"/*.md "$root"/*/README.md >"$work/text.txt"
"$old" data build "$work/text.txt" --out "$work/bytes" >/dev/null
"$old" data build "$work/text.txt" --out "$work/characters" --tokenizer characters >/dev/null
while read -r config ranks overrides; do
  rm -rf "$work/run" "$work/begun"
  # shellcheck disable=SC2086  # overrides are words
  train "$old" "$config" "$ranks" $overrides >"$work/old" </dev/null
  mv "$work/run" "$work/begun"
  # shellcheck disable=SC2086
  train "$new" "$config" "$ranks" $overrides >"$work/new" </dev/null
  compare "$config on $ranks: $overrides" "$work/new"
  rm -rf "$work/run" "$work/begun/checkpoints/step-00000004"
  mv "$work/begun" "$work/run"
  # shellcheck disable=SC2086
  train "$new" "$config" "$ranks" $overrides >"$work/continued" </dev/null
  compare "$config on $ranks, continued from the old program's step 2: $overrides" "$work/continued"
done < <(cases | grep -E -- "$pattern")
echo "$equal equal, $differ differ"
[ "$differ" = 0 ]
