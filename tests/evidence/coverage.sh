#!/usr/bin/env bash
# Which lines of the kernels, of their host code and of the emulator the tests reach; --help tells more.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/launch/scripts/common.sh"

suites=(kernels gpu_emulator_test cuda cublaslt cudnn device)
usage() {
  cat <<END
tests/evidence/coverage.sh [--report]

Compiles kernels/ with gcov's counters into build-coverage/, links it with the tests that an ordinary build has compiled,
runs ${suites[*]} in their short form, and prints a table of files: lines that
can run, lines that did, percent, and the numbers of those that did not. A file is one source however often it was
compiled, and a line has run where one of its instances has. Exit code 1 where a file has less than 95%, or a test failed.

  --report  only counts what the last run left
  --help    this text

Needs build/ of an ordinary build, and gcov, which comes with g++.
END
}

report=0
case ${1-} in
  -h | --help) usage && exit 0 ;;
  --report) report=1 ;;
  '') ;;
  *) fail 2 "unknown argument '$1'; --help tells more" ;;
esac
command -v gcov >/dev/null || fail 2 "gcov is missing; it comes with g++"
build=$root/build-coverage
failed=0

# link SUITE: its program, of the ordinary build's objects and of instrumented libraries, which are built first.
link() {
  local command counted
  command=$(ninja -C "$build_dir" -t commands "tests/test_$1" | tail -n 1)
  grep -oE '(kernels|gpu_emulator)/lib[a-z_]*\.a' <<<"$command" | sed 's|^gpu|tests/gpu|' | sort -u |
    xargs cmake --build "$build" -j "$(nproc)" --target || return 1
  counted=$(grep -oE '(kernels|tests/gpu_emulator)/libashlar_(kernels|emulated|emulator)\.a' <<<"$command" | sort -u |
    sed "s|^|$build/|")
  command=${command// kernels\/lib/ --coverage $build/kernels/lib}
  command=${command// tests\/gpu_emulator\/lib/ --coverage $build/tests/gpu_emulator/lib}
  # Of a function that is defined in a header the linker keeps the first copy, and those of tests have no counters.
  command=${command/ tests\/CMakeFiles/ -Wl,--whole-archive ${counted//$'\n'/ } -Wl,--no-whole-archive tests/CMakeFiles}
  (cd "$build_dir" && eval "${command/-o tests\/test_/-o $build/tests/test_}")
}

build_all() {
  local suite
  cmake --build "$build_dir" -j "$(nproc)" --target "${suites[@]/#/test_}" || return 1
  (cd "$root" && cmake --preset coverage) || return 1
  for suite in "${suites[@]}"; do link "$suite" || return 1; done
}

if [ "$report" -eq 0 ]; then
  mkdir -p "$build/tests"
  build_all >"$build/coverage.log" 2>&1 ||
    { tail -n 20 "$build/coverage.log" >&2 && fail 70 "the build failed, see above; all of it in $build/coverage.log"; }
  find "$build/kernels" "$build/tests/gpu_emulator" -name '*.gcda' -delete
  for suite in "${suites[@]}"; do
    began=$(now_us)
    "$build/tests/test_$suite" --gtest_brief=1 >"$build/coverage-$suite.log" 2>&1 </dev/null ||
      { failed=1 && echo "suite $suite failed; log: $build/coverage-$suite.log"; }
    printf '%-10s %6s s\n' "$suite" "$(seconds_since "$began")"
  done
fi

# Lines `FILE LINE RAN` of every object, 1 where the line ran. An object that no program ran has no counts: gcov then says
# that nothing of it did. Names of sources are relative to the build where ccache has made them so.
cd "$build"
find kernels tests/gpu_emulator -name '*.gcno' | while read -r notes; do
  gcov --stdout --source-prefix "$root" --relative-only --object-directory "$(dirname "$notes")" "$notes" 2>/dev/null |
    awk '
      match($0, /^ *-: *0:Source:/) { file = substr($0, RLENGTH + 1); sub(/^\.\.\//, "", file); next }
      file ~ /^(kernels|tests\/gpu_emulator)\// && match($0, /^ *[^ :]+: *[0-9]+:/) {
        split(substr($0, 1, RLENGTH), part, ":")
        gsub(/ /, "", part[1])
        if (part[1] != "-" && part[2] > 0) print file, part[2] + 0, part[1] ~ /^[0-9]/ ? 1 : 0
      }' | sort -u
done | sort -k 1,1 -k 2,2n -k 3,3nr | awk '
  function row(   percent) {
    if (file == "") return
    percent = 100 * reached / lines
    if (percent < 95) below = below " " file
    printf "%-46s %5d %5d %6.1f%s\n", file, lines, reached, percent, missing
    all += lines; all_reached += reached
  }
  $1 == file && $2 == line { next }  # its other instances: those that ran come first
  $1 != file { row(); file = $1; lines = reached = 0; missing = "" }
  { line = $2; ++lines; if ($3) ++reached; else missing = missing " " line }
  END {
    row()
    if (all == 0) { print "gcov found nothing"; exit 1 }
    printf "%-46s %5d %5d %6.1f\n", "all", all, all_reached, 100 * all_reached / all
    if (below != "") { print "below 95%:" below; exit 1 }
  }' || failed=1
exit "$failed"
