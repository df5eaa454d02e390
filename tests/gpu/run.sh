#!/usr/bin/env bash
# Runs everything that needs a GPU, from a bundle that bundle.sh made: no compiler, no MPI and no HDF5 of this machine.
set -uo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'END'
./run.sh [RESULTS]

Runs the parts of this bundle on the first GPU of this machine, 22 minutes at most in all, and writes into RESULTS (a
new or empty folder; results/ beside this script unless given) a file for each part, what each wrote beside it, and
summary.json and summary.txt, the table that is also printed.

Exit codes: 0 all parts passed, 1 a part failed or took too long, 2 wrong arguments, 3 no GPU (the first line says why),
4 what there is passed, but parts are not in this bundle.
END
}

case ${1-} in
  -h | --help) usage && exit 0 ;;
  -*) printf 'run.sh: unknown argument %s; --help tells more\n' "$1" >&2 && exit 2 ;;
esac
results=${1:-$here/results}
if [ -e "$results" ] && [ -n "$(ls -A "$results" 2>/dev/null)" ]; then
  printf 'run.sh: expected a new or empty folder, got %s; name another one\n' "$results" >&2
  exit 2
fi
mkdir -p "$results" || exit 2
results=$(cd "$results" && pwd)
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# Which GPU, or why none.
gpu=$("$here/bin/gpu_conformance" --device 2>&1)
case $? in
  0) printf 'GPU: %s\n' "$gpu" ;;
  3)
    printf '%s\n' "$gpu"
    exit 3
    ;;
  *)
    printf 'no GPU: bin/gpu_conformance cannot run here: %s\n' "$(head -n 1 <<<"$gpu")"
    exit 3
    ;;
esac
# Matrix products need cublasLt, which no bundle has room for.
if [ -z "${ASHLAR_CUBLASLT-}" ]; then
  for library in $(ldconfig -p 2>/dev/null | awk '/libcublasLt\.so\.13/ { print $NF }') \
    /usr/local/cuda*/lib64/libcublasLt.so.13 /usr/{local/,}lib/python3*/{site,dist}-packages/nvidia/cu13/lib/libcublasLt.so.13 \
    "${CUDA_HOME-/nowhere}"/lib64/libcublasLt.so.13; do
    [ -e "$library" ] && export ASHLAR_CUBLASLT=$library && break
  done
fi
printf 'cublasLt: %s\n' "${ASHLAR_CUBLASLT:-not found: parts that multiply matrices fail; ASHLAR_CUBLASLT=FILE names one}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
commit=$(cat "$here/commit" 2>/dev/null || echo unknown)

# quoted TEXT: as a JSON string.
quoted() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  printf '"%s"' "$(tr -d '\000-\037' <<<"$text")"
}

start=$SECONDS limit=$((22 * 60)) failed=0 absent=0 rows=()
# part NAME SECONDS PROGRAM ARGS...: runs a program of the bundle for so long at most, and writes NAME.json and NAME.log.
part() {
  local name=$1 seconds=$2 program=$here/bin/$3 status=absent code=0 took=0 last='not in this bundle' began=$SECONDS
  shift 3
  local left=$((limit - SECONDS + start))
  [ "$seconds" -le "$left" ] || seconds=$left
  if [ -x "$program" ]; then
    printf '%-16s ...\n' "$name"
    timeout -k 10 "$((seconds > 0 ? seconds : 1))" "$program" "$@" >"$results/$name.log" 2>&1 </dev/null
    code=$?
    took=$((SECONDS - began))
    last=$(grep -v '^[[:space:]]*$' "$results/$name.log" | tail -n 1)
    case $code in
      0) status=passed ;;
      124 | 137) status='out of time' ;;
      *) status=failed ;;
    esac
  fi
  case $status in
    passed) ;;
    absent) absent=$((absent + 1)) ;;
    *) failed=$((failed + 1)) ;;
  esac
  local row
  row="{\"part\": $(quoted "$name"), \"status\": $(quoted "$status"), \"exit\": $code, \"seconds\": $took, \"command\": $(quoted "bin/${program##*/} $*"), \"says\": $(quoted "$last")}"
  printf '%s\n' "$row" >"$results/$name.json"
  rows+=("$row")
  printf '%-16s %-12s %6d s  %s\n' "$name" "$status" "$took" "$last" >>"$results/summary.txt"
}

printf 'Ashlar %s on %s, %s\n\n' "$commit" "$gpu" "$(date -u +%Y-%m-%dT%H:%MZ)" >"$results/summary.txt"
part conformance 60 gpu_conformance "$results/conformance"
part kernels 360 gpu_kernels --gtest_brief=1
part nccl_2 60 nccl.sh 2
part nccl_4 90 nccl.sh 4
part training 270 training.sh "$work/training" 200
part determinism 120 determinism.sh "$work/determinism" 50
part bench_kernels 150 ashlar bench kernels --device cuda --dtype bf16
part bench_step 150 ashlar bench step "$here/gpt2-124m.toml" run.device=cuda run.dtype=bf16 --steps 20

{
  printf '{"commit": %s, "device": %s, "seconds": %d, "failed": %d, "absent": %d, "parts": [\n' \
    "$(quoted "$commit")" "$(quoted "$gpu")" $((SECONDS - start)) "$failed" "$absent"
  separator='  '
  for row in "${rows[@]}"; do
    printf '%s%s' "$separator" "$row"
    separator=$',\n  '
  done
  printf '\n]}\n'
} >"$results/summary.json"
printf '\n'
cat "$results/summary.txt"
printf '\n%s\n' "$results/summary.json"
[ "$failed" -eq 0 ] || exit 1
[ "$absent" -eq 0 ] || exit 4
