# What a run of tests says about a mutant (sourced by mutants.sh and by tests/scripts). Expects common.sh, `work`, `tree`.
# shellcheck shell=bash
# Only an assertion that fails with the mutant and holds without it is proof by itself. A crash or a hang may as well come
# from the machine or from what runs the tests: it counts when it comes twice, in the middle of a test, and the program
# without the mutant passes the same test right after, under the same conditions.

baseline=$work/baseline
tests_log=$work/tests.log
spare_seconds=10  # beyond the limit of a test, before a run is taken for hung
tests_pid= scratch=
trap 'stop_tests; [ -z "$scratch" ] || rm -rf "$scratch"' EXIT

# keep_baseline TARGET...: the programs that were built without a mutant.
keep_baseline() {
  mkdir -p "$baseline"
  local target
  for target in "$@"; do cp -p "$(program "$tree/build" "$target")" "$baseline/"; done
}
program() { if [ "$2" = ashlar ]; then echo "$1/ashlar"; else echo "$1/tests/$2"; fi; }

stop_tests() {
  [ -n "$tests_pid" ] || return 0
  # All that the tests have started is in one process group.
  kill -- "-$tests_pid" 2>/dev/null || true
  for _ in $(seq 50); do kill -0 -- "-$tests_pid" 2>/dev/null || break; sleep 0.1; done
  kill -9 -- "-$tests_pid" 2>/dev/null || true
  wait "$tests_pid" 2>/dev/null || true
  tests_pid=
}

# run_tests EXECUTABLE RANKS FILTER LIMIT: runs them until one fails. Sets `outcome` (pass, fail, crash, hang, none) and
# `test`, the one that it happened in. RANKS is - for a suite without ranks. none: not even one test began, twice: seen
# once, right after an mpirun that was stopped, where the program was as good as any.
run_tests() {
  try_tests "$@"
  if [ "$outcome" = none ]; then try_tests "$@"; fi
}
try_tests() {
  local executable=$1 ranks=$2 filter=$3 limit=$4 code=0 began failure='^\[  FAILED  \]|: Failure$' timed_out=0
  local command=("$executable")
  if [ "$ranks" != - ]; then command=("$root/launch/scripts/with_ranks.sh" "$ranks" "$executable"); fi
  began=$(now_us)
  # A mutant may forget to remove its files, or reserve all there is: it gets a folder of its own and small files.
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/ashlar-mutant-XXXXXX")
  (
    ulimit -S -f 4194304  # 4 GiB
    TMPDIR=$scratch ASHLAR_TEST_SECONDS=$limit exec nice -n 5 setsid "${command[@]}" --gtest_color=no \
      --gtest_filter="$filter"
  ) </dev/null >"$tests_log" 2>&1 9>&- &  # 9: the lock of mutants.sh
  tests_pid=$!
  while kill -0 "$tests_pid" 2>/dev/null && ! grep -qsE "$failure" "$tests_log"; do
    sleep 0.1
    if [ $(($(now_us) - began)) -gt $(((limit + spare_seconds) * 1000000)) ]; then timed_out=1; break; fi
  done
  if kill -0 "$tests_pid" 2>/dev/null; then stop_tests; else wait "$tests_pid" || code=$?; tests_pid=; fi
  rm -rf "$scratch"
  scratch=
  test=$(awk -v failure="${failure//\\/\\\\}" '/^\[ RUN/ { test = $NF } $0 ~ failure { exit } END { print test }' "$tests_log")
  if grep -qE "$failure" "$tests_log"; then
    outcome=fail
  elif [ -z "$test" ]; then
    outcome=none
  elif [ "$timed_out" -eq 1 ] || grep -q 'did not end within' "$tests_log"; then
    outcome=hang
  elif [ "$code" -ne 0 ] || ! grep -q '^\[  PASSED  \]' "$tests_log"; then
    outcome=crash
  else
    outcome=pass
  fi
}

# measure_baseline SUITE RANKS FILTER: whether the tests pass without a mutant; keeps how long they take.
measure_baseline() {
  local began
  began=$(now_us)
  run_tests "$baseline/test_$1" "$2" "$3" 600
  limits["$*"]=$((20 + 5 * ($(now_us) - began) / 1000000))
  [ "$outcome" = pass ]
}
declare -A limits=()

# starts_binary SUITE: whether its tests start build/ashlar.
starts_binary() { grep -q "^ashlar_add_test($1 BINARY" "$root/tests/CMakeLists.txt"; }

# passes_without SUITE RANKS FILTER LIMIT: whether the program without the mutant passes, where the tests start
# build/ashlar with that one in its place.
passes_without() {
  local ashlar=$tree/build/ashlar
  if starts_binary "$1"; then mv "$ashlar" "$work/ashlar.mutant" && cp -p "$baseline/ashlar" "$ashlar"; fi
  run_tests "$baseline/test_$1" "$2" "$3" "$4"
  if starts_binary "$1"; then mv "$work/ashlar.mutant" "$ashlar"; fi
  [ "$outcome" = pass ]
}

# passes SUITE RANKS FILTER: whether these tests pass with the mutant that is built. Else sets `verdict` and `how`.
passes() {
  local executable=$tree/build/tests/test_$1 limit=${limits["$*"]} first where on
  run_tests "$executable" "$2" "$3" "$limit"
  if [ "$outcome" = pass ]; then return 0; fi
  first=$outcome where=$test on=$1
  if [ "$2" != - ]; then on="$1 on $2"; fi
  verdict=BROKEN
  if [ "$first" = none ]; then
    how="$on: no test began: $(tail -n 1 "$tests_log")"
    return 1
  fi
  if [ "$first" != fail ]; then
    run_tests "$executable" "$2" "$where" "$limit"
    if [ "$outcome" = fail ]; then
      first=fail
    elif [ "$outcome" != "$first" ]; then
      how="$on: $first in $where, alone: $outcome"
      return 1
    fi
  fi
  if ! passes_without "$1" "$2" "$where" "$limit"; then
    how="$on: $first in $where, but without the mutant: $outcome: $(tail -n 1 "$tests_log")"
    return 1
  fi
  verdict=caught how="$on: $where"
  if [ "$first" != fail ]; then verdict=$first; fi
  return 1
}
