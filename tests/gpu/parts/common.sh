# shellcheck shell=bash disable=SC2034
# What the parts that train share: the program beside them, a text, and rows of metrics.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ashlar=$here/ashlar

# write_text FILE: words with something to learn, the same on every machine.
write_text() {
  awk 'BEGIN {
    n = split("stone laid in courses cut so true that the wall needs no mortar", words, " ")
    seed = 12345
    for (line = 0; line < 6000; line++) {
      text = ""
      for (i = 0; i < 9; i++) {
        seed = (seed * 16807) % 2147483647
        text = text words[seed % n + 1] " "
      }
      print text
    }
  }' >"$1"
}

# write_config FILE STEPS: a small model without dropout; the caller says device, dtype and folder.
write_config() {
  cat >"$1" <<END
[run]
seed = 3
[model]
d_model = ${ASHLAR_GPU_WIDTH:-128}
n_layers = 2
n_heads = 4
[ffn]
multiple_of = 16
[train]
steps = $2
sequence_length = ${ASHLAR_GPU_LENGTH:-64}
global_batch = 4
micro_batch = 2
eval_sequences = 2
[optimizer]
lr = 1e-3
[schedule]
warmup_steps = 2
[data]
path = "data"
[log]
every = 50
END
}

# losses RUN: "step loss" for each step.
losses() { sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl"; }

# train DIR WORDS...: one run, its output in DIR.log.
train() {
  local dir=$1
  shift
  "$ashlar" train run.toml run.dir="$dir" "$@" >"$dir.log" 2>&1 || {
    tail -n 3 "$dir.log"
    exit 1
  }
}
