#!/usr/bin/env bash
# Which lines of the CUDA kernels, of their host code and of the emulator the tests reach; --help tells more.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/launch/scripts/common.sh"

usage() {
  cat <<'END'
tests/evidence/coverage.sh [--report]

Builds the suites that run kernels/cuda and kernels/cuda_host into build-coverage/ with gcov's counters, runs them in
their short form, and prints a table of files: lines that can run, lines that did, percent, and the numbers of those that
did not. A file is one source however often it was compiled, and a line has run where one of its instances has. Exit code
1 where a file has less than 95%, or a test failed.

  --report  only counts what the last run left
  --help    this text

Takes the CUDA objects that build/ holds, where there are some. Needs gcov, which comes with g++.
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
objects=$build_dir/kernels/cuda
build=$root/build-coverage
suites=(emulator cublaslt cudnn device watched cuda cuda_runs)

failed=0
if [ "$report" -eq 0 ]; then
  options=()
  if compgen -G "$objects/*.cu.o" >/dev/null; then options=(-DASHLAR_CUDA_OBJECTS="$objects"); fi
  (cd "$root" && cmake --preset coverage ${options[@]+"${options[@]}"}) >/dev/null
  cmake --build "$build" -j "$(nproc)" --target "${suites[@]/#/test_}" >"$build/coverage.log" 2>&1 ||
    { tail -n 20 "$build/coverage.log" >&2 && fail 70 "the build failed, see above; all of it in $build/coverage.log"; }
  find "$build/kernels" -name '*.gcda' -delete
  for suite in "${suites[@]}"; do
    began=$(now_us)
    "$build/tests/test_$suite" --gtest_brief=1 >"$build/coverage-$suite.log" 2>&1 </dev/null ||
      { failed=1 && echo "suite $suite failed; log: $build/coverage-$suite.log"; }
    printf '%-10s %6s s\n' "$suite" "$(seconds_since "$began")"
  done
fi

# Lines `FILE LINE RAN` of every object, 1 where the line ran.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for library in emulator emulated cuda_vendors cudnn; do
  folder=$build/kernels/CMakeFiles/ashlar_$library.dir
  [ -d "$folder" ] || continue
  find "$folder" -name '*.gcno' | while read -r notes; do
    # Counts are missing where no program with the object ran: gcov then says that nothing did.
    gcov --stdout --source-prefix "$root" --relative-only --object-directory "$(dirname "$notes")" "$notes" 2>/dev/null |
      awk '
        match($0, /^ *-: *0:Source:/) { file = substr($0, RLENGTH + 1); next }
        file ~ /^kernels\/cuda/ && match($0, /^ *[^ :]+: *[0-9]+:/) {
          split(substr($0, 1, RLENGTH), part, ":")
          gsub(/ /, "", part[1])
          if (part[1] != "-" && part[2] + 0 > 0) print file, part[2] + 0, part[1] ~ /^[0-9]/ ? 1 : 0
        }'
  done
done >"$work/lines"
[ -s "$work/lines" ] || fail 70 "gcov found nothing in $build; --help tells how it is made"

# Reasons of what is not judged: files that only a GPU can take to their ends.
awk '
  { key = $1 " " $2; if (!(key in ran) || $3 > ran[key]) ran[key] = $3 }
  END {
    for (key in ran) {
      split(key, part, " ")
      print part[1], part[2], ran[key]
    }
  }' "$work/lines" | sort -k 1,1 -k 2,2n | awk '
  function row(   percent, verdict) {
    if (file == "") return
    percent = 100 * reached / lines
    verdict = percent >= 95 ? "" : file ~ /_cuda\.cpp$/ ? "  needs a GPU" : "  BELOW 95"
    if (verdict ~ /BELOW/) below = below " " file
    printf "%-46s %5d %5d %6.1f%s%s\n", file, lines, reached, percent, verdict, missing == "" ? "" : "  not:" missing
    all += lines; all_reached += reached
  }
  $1 != file { row(); file = $1; lines = reached = 0; missing = "" }
  { ++lines; if ($3) ++reached; else missing = missing " " $2 }
  END {
    row()
    printf "%-46s %5d %5d %6.1f\n", "all", all, all_reached, 100 * all_reached / all
    if (below != "") { print "below 95%:" below; exit 1 }
  }' || failed=1
exit "$failed"
