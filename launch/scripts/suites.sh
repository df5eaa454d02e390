# Runs GoogleTest executables and counts their tests. Sourced by ./check and by tests/scripts, after common.sh.
# shellcheck shell=bash
# A suite is an executable DIR/test_SUITE. Its tests count as passed, failed or skipped. A suite that crashes, hangs,
# leaks, runs no test or takes more than twice its budget counts as one more failure and is listed by name.

# suites_begin DIR: starts counting. Logs and results go to DIR, which is emptied first.
suites_begin() {
  suites_dir=$1
  rm -rf "$suites_dir"
  mkdir -p "$suites_dir" || fail 6 "cannot make the folder $suites_dir for test logs"
  : >"$suites_dir/failed"
  : >"$suites_dir/skipped"
  : >"$suites_dir/warnings"
  total_passed=0 total_failed=0 total_skipped=0
  printf '   %-24s %7s %7s %8s %9s %8s %8s\n' suite passed failed skipped seconds budget 'of CPUs'
}

# summarise_xml FILE: prints one line per test in GoogleTest's XML report FILE: `passed NAME`, `failed NAME` or `skipped
# NAME: reason`.
summarise_xml() {
  awk '
    function attribute(key,   at, rest) {
      at = index($0, " " key "=\"")
      if (at == 0) return ""
      rest = substr($0, at + length(key) + 3)
      return substr(rest, 1, index(rest, "\"") - 1)
    }
    function flush() {
      if (name == "") return
      if (failed) print "failed " name
      else if (result == "skipped") print "skipped " name ": " reason
      else if (result == "suppressed") print "skipped " name ": switched off"
      else print "passed " name
    }
    /^    <testcase name="/ {
      flush()
      name = attribute("classname") "." attribute("name"); result = attribute("result"); failed = 0; reason = "no reason given"
    }
    /^      <failure message="/ { failed = 1 }
    /^      <skipped message="/ {
      text = attribute("message")
      sub(/^[^&]*&#x0A;/, "", text); gsub(/&#x0A;/, " ", text)
      gsub(/&quot;/, "\"", text); gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&apos;/, "\047", text)
      gsub(/&amp;/, "\\&", text)
      if (text != "") reason = text
    }
    END { flush() }' "$1"
}

# failed_part LOG: prints the output of the tests that failed or never ended, at most 60 lines of each.
failed_part() {
  awk '
    /^\[ RUN      \]/ { text = $0; lines = 0; open = 1; next }
    /^\[       OK \]|^\[  SKIPPED \]/ { open = 0; next }
    /^\[  FAILED  \]/ { if (open) print text "\n" $0; open = 0; next }
    open && ++lines <= 60 { text = text "\n" $0 }
    END { if (open) print text }' "$1" | cut -c 1-400
}

# hang_limit BUDGET: prints the seconds after which a suite with this budget counts as hung.
hang_limit() { if [ "$1" = - ]; then echo 14400; else echo $(($1 * 4 + 60)); fi; }

# rank_counts SUITE EXECUTABLE: prints the numbers of ranks on which the suite runs, one per line; nothing for a suite
# without ranks. For the reference vectors, ASHLAR_GOLDEN_LAYOUTS ("1x1x1 2x1x2x2 ...", tensor x pipeline x data, of which
# so many divide the experts) sets them.
rank_counts() {
  if [ "$1" = reference ] && [ -n "${ASHLAR_GOLDEN_LAYOUTS:-}" ]; then
    printf '%s\n' $ASHLAR_GOLDEN_LAYOUTS | awk -F x '{ print $1 * $2 * $3 }' | sort -nu
  elif [ -s "$2.ranks" ]; then
    cat "$2.ranks"
  fi
}

# run_suite SUITE LABEL EXECUTABLE BUDGET [GTEST_ARGUMENT...]: runs a suite and counts its tests. BUDGET is in seconds,
# - for none. Standard input is empty. If EXECUTABLE.ranks lists numbers of ranks, the suite runs once on each number of
# ranks, each time with this budget.
run_suite() {
  local suite=$1 label=$2 executable=$3 budget=$4 counts ranks
  shift 4
  counts=$(rank_counts "$suite" "$executable")
  if [ -z "$counts" ]; then
    run_command "$label" "$budget" "$executable" "$@"
    return
  fi
  for ranks in $counts; do
    run_command "$label on $ranks" "$budget" "$root/launch/scripts/with_ranks.sh" "$ranks" "$executable" "$@"
  done
}

# run_command LABEL BUDGET COMMAND...: runs COMMAND, which runs a GoogleTest executable, and counts its tests.
run_command() {
  local label=$1 budget=$2
  shift 2
  local log=$suites_dir/${label// /-}.log xml=$suites_dir/${label// /-}.xml start code=0 limit
  limit=$(hang_limit "$budget")
  start=$(now_us)
  local TIMEFORMAT='%U %S' # of the command and of all processes it waited for
  {
    time timeout -k 10 "$limit" "$@" --gtest_output="xml:$xml" --gtest_color=no </dev/null >"$log" 2>&1 || code=$?
  } 2>"$log.cpu"
  local seconds cpu passed=0 failed=0 skipped=0 outcome rest
  seconds=$(seconds_since "$start")
  cpu=$(awk '{ printf "%.1f", $1 + $2 }' "$log.cpu")
  local problem=
  if [ -s "$xml" ]; then
    while read -r outcome rest; do
      case $outcome in
        passed) passed=$((passed + 1)) ;;
        failed) failed=$((failed + 1)) && printf '%s %s\n' "$label" "$rest" >>"$suites_dir/failed" ;;
        skipped) skipped=$((skipped + 1)) && printf '%s %s\n' "$label" "$rest" >>"$suites_dir/skipped" ;;
      esac
    done < <(summarise_xml "$xml")
    if [ "$code" -ne 0 ] && [ "$failed" -eq 0 ]; then problem="ended with code $code though no test failed"; fi
    if [ $((passed + failed + skipped)) -eq 0 ]; then problem="ran no test"; fi
  else
    passed=$(grep -c '^\[       OK \]' "$log" || true)
    failed=$(grep -c '^\[  FAILED  \] .*ms)$' "$log" || true)
    local last
    last=$(sed -n 's/^\[ RUN      \] //p' "$log" | tail -n 1)
    case $code in
      124 | 137) problem="was stopped after $limit s" ;;
      *) problem="crashed with code $code" ;;
    esac
    problem="$problem in ${last:-its start}; the tests after it did not run"
  fi
  if [ -n "$problem" ]; then
    failed=$((failed + 1))
    printf '%s %s\n' "$label" "$problem" >>"$suites_dir/failed"
  fi
  local tenths=${seconds/./}
  if [ "$budget" != - ] && [ "$tenths" -gt $((budget * 20)) ]; then
    failed=$((failed + 1))
    printf '%s took %s s, more than twice its budget of %s s\n' "$label" "$seconds" "$budget" >>"$suites_dir/failed"
  elif [ "$budget" != - ] && [ "$tenths" -gt $((budget * 10)) ]; then
    printf '%s took %s s, over its budget of %s s\n' "$label" "$seconds" "$budget" >>"$suites_dir/warnings"
  fi
  printf '   %-24s %7d %7d %8d %9s %8s %8s\n' "$label" "$passed" "$failed" "$skipped" "$seconds" "$budget" "$cpu"
  if [ "$failed" -gt 0 ]; then
    {
      failed_part "$log"
      if [ -n "$problem" ]; then tail -n 15 "$log"; fi
    } | sed 's/^/      | /'
    printf '      | log: %s; again: %s\n' "$log" "$*"
  fi
  { grep -nE '^(\[WARN\]|warning: )|WARNING: |ERROR: (Address|Leak)Sanitizer|runtime error: ' "$log" || true; } |
    head -n 5 | cut -c 1-300 | sed "s|^|$label, log line |" >>"$suites_dir/warnings"
  total_passed=$((total_passed + passed)) total_failed=$((total_failed + failed)) total_skipped=$((total_skipped + skipped))
}

# run_half N SUITE LABEL EXECUTABLE BUDGET [GTEST_ARGUMENT...]: runs every second test of the suite with this budget,
# beginning with the first (N = 0) or the second (N = 1). Call it in a subshell, since it exports variables.
run_half() {
  export GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=$1
  shift
  run_suite "$@"
}

# run_jobs: runs the commands in the array `jobs`: all halves at once, since they mostly wait, and three others at a
# time; with two, the cores are idle for a sixth of the time. An entry is run_half or run_suite with its arguments,
# separated by newlines; halves come first. The output of an entry is printed when it has ended.
run_jobs() {
  local pid finished=0 started=0 busy=0 slot numbers passed failed skipped
  declare -A slots=()
  while [ "$finished" -lt ${#jobs[@]} ]; do
    while [ "$started" -lt ${#jobs[@]} ]; do
      if [[ ${jobs[$started]} != run_half* ]]; then
        [ "$busy" -lt 3 ] || break
        busy=$((busy + 1))
      fi
      (
        total_passed=0 total_failed=0 total_skipped=0
        mapfile -t words <<<"${jobs[$started]}"
        "${words[@]}"
        echo "$total_passed $total_failed $total_skipped" >"$suites_dir/job-$started.totals"
      ) >"$suites_dir/job-$started.out" 2>&1 &
      slots[$!]=$started
      started=$((started + 1))
    done
    wait -n -p pid || true
    slot=${slots[$pid]}
    if [[ ${jobs[$slot]} != run_half* ]]; then busy=$((busy - 1)); fi
    cat "$suites_dir/job-$slot.out"
    numbers='0 1 0'
    if [ -s "$suites_dir/job-$slot.totals" ]; then
      numbers=$(cat "$suites_dir/job-$slot.totals")
    else
      printf 'was not run to its end: %s\n' "${jobs[$slot]//$'\n'/ }" >>"$suites_dir/failed"
    fi
    read -r passed failed skipped <<<"$numbers"
    total_passed=$((total_passed + passed)) total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped)) finished=$((finished + 1))
  done
}

# list_section TITLE FILE: prints FILE under TITLE; prints nothing if FILE is empty.
list_section() {
  [ -s "$2" ] || return 0
  printf '\n== %s\n' "$1"
  sed 's/^/   /' "$2"
}

# by_reason FILE: FILE has lines `SUITE TEST: REASON`. Prints one line per reason, in the order of first appearance.
# Where a library is missing, hundreds of lines with one reason would hide the other reasons.
by_reason() {
  awk '
    {
      at = index($0, ": ")
      who = substr($0, 1, at - 1); reason = substr($0, at + 2)
      if (!(reason in count)) { order[++reasons] = reason; first[reason] = who }
      ++count[reason]
    }
    END {
      for (i = 1; i <= reasons; ++i) {
        reason = order[i]
        print first[reason] (count[reason] > 1 ? " and " count[reason] - 1 " more: " : ": ") reason
      }
    }' "$1"
}

# suites_end: lists the skipped tests, the warnings and the failures, then prints the totals. Fails if any test failed.
suites_end() {
  by_reason "$suites_dir/skipped" >"$suites_dir/skipped.reasons"
  list_section "Skipped (by name: $suites_dir/skipped)" "$suites_dir/skipped.reasons"
  list_section 'Warnings' "$suites_dir/warnings"
  list_section 'Failed' "$suites_dir/failed"
  printf '\n%d passed, %d failed, %d skipped\n' "$total_passed" "$total_failed" "$total_skipped"
  [ "$total_failed" -eq 0 ]
}
