# shellcheck shell=bash disable=SC2034
# What the parts that train share: the program beside them, a text, and rows of metrics.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ashlar=$here/ashlar

# skip REASON: ends a part that this machine cannot run; run.sh says the reason, and counts it as neither passed nor
# failed.
skip() {
  printf 'skipped: %s\n' "$*"
  exit 77
}

# on_ranks N COMMAND...: on so many ranks of this machine, by the MPI of the bundle, else this machine's.
on_ranks() {
  local ranks=$1 mpi=$here/../mpi mpirun=mpirun
  shift
  if [ -x "$mpi/bin/mpirun" ]; then
    # shellcheck disable=SC1091  # made by bundle.sh
    . "$mpi/env.sh"
    mpirun=$mpi/bin/mpirun
  fi
  "$mpirun" --allow-run-as-root --oversubscribe --bind-to none --mca pml ob1 --mca btl self,vader --mca plm isolated \
    -np "$ranks" "$@"
}

# number_of_gpus: that programs see.
number_of_gpus() {
  local seen=${CUDA_VISIBLE_DEVICES-}
  if [ -n "$seen" ]; then
    tr ',' '\n' <<<"$seen" | grep -c .
  else
    nvidia-smi -L 2>/dev/null | grep -c '^GPU'
  fi
}

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

# write_qwen FILE WIDTH LAYERS HEADS KV_HEADS D_FF: a model of the Qwen2.5 family.
write_qwen() {
  cat >"$1" <<END
[model]
d_model = $2
n_layers = $3
n_heads = $4
n_kv_heads = $5
d_ff = $6
[vocab]
size = 151936
[bias]
qkv = true
[head]
tie = true
END
}

# losses RUN: "step loss" for each step.
losses() { sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl"; }

# distance A B: "largest relative difference, mean difference" of the losses of two runs.
distance() {
  paste -d ' ' <(losses "$1") <(losses "$2") | awk '{
    d = $4 - $2; if (d < 0) d = -d
    sum += d; if (d / $2 > most) most = d / $2
  } END { printf "%.3g %.3g\n", most, sum / NR }'
}

# train DIR WORDS...: one run, its output in DIR.log.
train() { train_on 1 "$@"; }
# train_on RANKS DIR WORDS...
train_on() {
  local dir=$2 program=("$ashlar")
  [ "$1" -eq 1 ] || program=(on_ranks "$1" "$ashlar")
  shift 2
  "${program[@]}" train run.toml run.dir="$dir" "$@" >"$dir.log" 2>&1 || {
    tail -n 3 "$dir.log"
    exit 1
  }
}
