#!/usr/bin/env bash
# Runs everything that needs a GPU, from a bundle that bundle.sh made: no compiler, no MPI and no HDF5 of this machine.
set -uo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'END'
./run.sh [--only PART,...] [--minutes N] [RESULTS]

Runs the parts of this bundle on the first GPU of this machine, 40 minutes at most in all and each part 6 minutes at
most. Writes into RESULTS (results/ beside this script unless given) a file for each part, what each wrote beside it,
summary.json and summary.txt, the table that is also printed, and all of it as RESULTS.tar.gz.

  --only PART,...   only these parts, again if there are results of them; ./run.sh --parts lists them
  --minutes N       begins no part that may not end within N minutes of the start, for machines that limit a command.
                    The next call with the same RESULTS goes on with the parts that are left

A part that is stopped, by its limit or with this script, keeps what it has written and is marked "cut off". One that
needs what this machine has not, two GPUs or Nsight Compute, is "skipped", which is no failure.

Exit codes: 0 all parts passed, 1 a part failed or took too long, 2 wrong arguments, 3 no GPU (the first line says why),
4 what there is passed, but parts are not in this bundle, 5 parts are left: call again.
END
}

refuse() { printf 'run.sh: %s\n' "$1" >&2 && exit 2; }

# NAME SECONDS PROGRAM ARGS, in the order in which they run; WORK and RESULTS stand for folders. ASHLAR_GPU_LIMIT is the
# limit of each instead, for tests.
parts='conformance 60 gpu_conformance RESULTS/conformance
kernels 360 gpu_kernels --gtest_brief=1
nccl_2 60 nccl.sh 2
nccl_4 90 nccl.sh 4
training 270 training.sh WORK/training 200
determinism 120 determinism.sh WORK/determinism 50
bench_kernels 150 ashlar bench kernels --device cuda --dtype bf16
bench_cudnn 300 bench.sh cudnn
bench_own 300 bench.sh own
profile 240 profile.sh RESULTS/profile
data_2 180 two_gpus.sh data WORK/data_2 50
tensor_2 180 two_gpus.sh tensor WORK/tensor_2 50
nccl_bandwidth 60 two_gpus.sh bandwidth WORK/bandwidth 0'

only='' minutes='' results=$here/results arguments=("$@")
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage && exit 0 ;;
    --parts) awk '{ print $1 }' <<<"$parts" && exit 0 ;;
    --only | --minutes)
      [ $# -ge 2 ] || refuse "expected a value after $1; --help tells more"
      if [ "$1" = --only ]; then only=${2//,/ }; else minutes=$2; fi
      shift
      ;;
    -*) refuse "unknown argument $1; --help tells more" ;;
    *) results=$1 ;;
  esac
  shift
done
[[ $minutes =~ ^([1-9][0-9]*)?$ ]] || refuse "expected --minutes as a whole number from 1, got $minutes"
for name in $only; do
  grep -q "^$name " <<<"$parts" || refuse "there is no part $name; ./run.sh --parts lists them"
done
commit=$(cat "$here/commit" 2>/dev/null || echo unknown)
mkdir -p "$results" || exit 2
results=$(cd "$results" && pwd)
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# The CUDA of this bundle and the least driver for it, if bundle.sh knew them.
cuda='' least=''
[ ! -e "$here/needs" ] || read -r cuda least <"$here/needs"
# shellcheck source=tests/gpu/parts/machine.sh
. "$here/bin/machine.sh" || exit 2
# shellcheck source=tests/gpu/parts/clocks.sh
. "$here/bin/clocks.sh" || exit 2

# Which GPU, or why none.
gpu=$("$here/bin/gpu_conformance" --device 2>&1)
case $? in
  0) printf 'GPU: %s\n' "$gpu" ;;
  3)
    old_driver "$here" "$cuda" "$least" ${arguments[@]+"${arguments[@]}"} "$results"
    printf '%s\n' "$gpu"
    exit 3
    ;;
  *)
    printf 'no GPU: bin/gpu_conformance cannot run here: %s\n' "$(head -n 1 <<<"$gpu")"
    exit 3
    ;;
esac
# Results of several calls are of one bundle and one GPU.
of="$commit on $gpu"
if [ -n "$(ls -A "$results")" ] && [ "$(cat "$results/of" 2>/dev/null)" != "$of" ]; then
  refuse "expected a new or empty folder, or results of $of, got $results; name another one"
fi
printf '%s\n' "$of" >"$results/of"
nvidia-smi -q >"$results/nvidia-smi.txt" 2>&1 || rm -f "$results/nvidia-smi.txt"

libraries "${cuda%%.*}"

# quoted TEXT: as a JSON string.
quoted() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  printf '"%s"' "$(tr -d '\000-\037' <<<"$text")"
}

work=$(mktemp -d)
# A child that is told to end before it has become its program still has this.
trap '[ "$BASHPID" != $$ ] || { clocks_end; rm -rf "$work"; }' EXIT
start=$SECONDS child='' stopped='' left=0

# note NAME STATUS CODE SECONDS COMMAND SAYS: writes NAME.json and NAME.line, a row of the summary; with the clocks that
# NAME.clocks.csv has.
note() {
  local clocks=$results/$1.clocks.csv
  printf '{"part": %s, "status": %s, "exit": %d, "seconds": %d, "command": %s, "says": %s, "gpu": %s}\n' \
    "$(quoted "$1")" "$(quoted "$2")" "$3" "$4" "$(quoted "$5")" "$(quoted "$6")" "$(clocks_summary json "$clocks")" \
    >"$results/$1.json"
  printf '%-16s %-12s %6d s  %s\n' "$1" "$2" "$4" "$6" >"$results/$1.line"
  [ ! -s "$clocks" ] || printf '%37s%s\n' '' "$(clocks_summary text "$clocks")" >>"$results/$1.line"
}
# part NAME SECONDS PROGRAM ARGS...: runs a program of the bundle for so long at most.
part() {
  local name=$1 seconds=$2 program=$here/bin/$3 status began=$SECONDS code=0
  shift 3
  local command="bin/${program##*/} $*"
  if [ ! -x "$program" ]; then
    note "$name" absent 0 0 "$command" 'not in this bundle'
    return
  fi
  printf '%-16s ...\n' "$name"
  clocks_watch "$results/$name.clocks.csv"
  timeout -k 10 "$seconds" "$program" "$@" >"$results/$name.log" 2>&1 </dev/null &
  child=$!
  wait "$child"
  code=$?
  # A signal ends `wait` before the child; it is then stopped, and what it had is kept.
  if [ -n "$stopped" ]; then wait "$child" 2>/dev/null; fi
  child=''
  clocks_end
  case $code in
    0) status=passed ;;
    77) status=skipped ;;
    124 | 137) status='cut off' ;;
    *) status=failed ;;
  esac
  if [ -n "$stopped" ]; then status='cut off'; fi
  note "$name" "$status" "$code" $((SECONDS - began)) "$command" \
    "$(grep -v '^[[:space:]]*$' "$results/$name.log" | tail -n 1)"
  if [ -n "$stopped" ]; then touch "$results/$name.again"; fi
}
trap 'stopped=yes; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM INT HUP

while read -r name seconds program arguments; do
  seconds=${ASHLAR_GPU_LIMIT:-$seconds}
  if [ -n "$only" ]; then
    [[ " $only " == *" $name "* ]] || continue
  elif [ -e "$results/$name.json" ] && [ ! -e "$results/$name.again" ]; then
    continue
  fi
  if [ -n "$stopped" ] || { [ -n "$minutes" ] && [ $((SECONDS - start + seconds)) -gt $((minutes * 60)) ]; }; then
    left=$((left + 1))
    continue
  fi
  rm -f "$results/$name".{json,line,again,clocks.csv}
  arguments=${arguments//WORK/$work}
  # shellcheck disable=SC2086  # several words
  part "$name" "$seconds" "$program" ${arguments//RESULTS/$results}
  if [ -n "$stopped" ]; then left=$((left + 1)); fi
done <<<"$parts"

count() { grep -l "\"status\": \"$1\"" "$results"/*.json 2>/dev/null | grep -cv '/summary\.json$'; }
failed=$(($(count failed) + $(count 'cut off'))) absent=$(count absent) skipped=$(count skipped)
{
  printf '{"commit": %s, "device": %s, "seconds": %d, "failed": %d, "absent": %d, "skipped": %d, "left": %d, ' \
    "$(quoted "$commit")" "$(quoted "$gpu")" $((SECONDS - start)) "$failed" "$absent" "$skipped" "$left"
  printf '"parts": [\n'
  separator='  '
  while read -r name _; do
    [ -e "$results/$name.json" ] || continue
    printf '%s%s' "$separator" "$(cat "$results/$name.json")"
    separator=$',\n  '
  done <<<"$parts"
  printf '\n]}\n'
} >"$results/summary.json.new" && mv "$results/summary.json.new" "$results/summary.json"
{
  printf 'Ashlar %s, %s\n\n' "$of" "$(date -u +%Y-%m-%dT%H:%MZ)"
  while read -r name _; do
    if [ -e "$results/$name.line" ]; then cat "$results/$name.line"; else printf '%-16s left\n' "$name"; fi
  done <<<"$parts"
} >"$results/summary.txt"
tar -C "$(dirname "$results")" --exclude='*.line' --exclude='*.again' -czf "$results.tar.gz" "$(basename "$results")"
printf '\n'
cat "$results/summary.txt"
printf '\n%s\n' "$results.tar.gz"
[ "$left" -eq 0 ] || exit 5
[ "$failed" -eq 0 ] || exit 1
[ "$absent" -eq 0 ] || exit 4
