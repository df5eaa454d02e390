#!/usr/bin/env bash
# Plants the errors of the tables beside this script, one at a time, and says which the tests catch; --help tells more.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$root/launch/scripts/common.sh"

usage() {
  cat <<'END'
tests/mutants/mutants.sh [TABLE]... [--list] [--only NAME]... [--from NAME]

Copies the tree to build/mutants/tree and checks that its tests pass; then, for each mutant of the tables (all, when none
is named), changes the copy, builds it and runs the tests that its table names until one fails. One line each:

  caught   a test fails by assertion, and passes without the mutant right after
  crash    the tests' process ends by itself in the middle of a test, twice, and not without the mutant right after
  hang     a test does not end within its limit, twice, and does without the mutant right after
  MISSED   all tests pass
  BROKEN   nothing is known: the mutant cannot be built, or the tests fail without it too

Ends with `N of M mutants caught (...)`; exit code 1 when fewer than 98% are, or one is broken.

  --list       only checks that each mutant still fits the sources, and lists them
  --only NAME  only this mutant (may be given several times)
  --from NAME  this mutant and those behind it: continues a run that was stopped
  --help       this text
END
}

folder=${ASHLAR_MUTANTS:-$here}
tables=() only=() from= list=0
while [ $# -gt 0 ]; do
  case $1 in
    --only | --from)
      [ $# -ge 2 ] || fail 2 "$1 needs the name of a mutant; --list names them"
      if [ "$1" = --only ]; then only+=("$2"); else from=$2; fi
      shift
      ;;
    --list) list=1 ;;
    -h | --help) usage && exit 0 ;;
    -*) fail 2 "unknown argument '$1'; --help lists what there is" ;;
    *)
      [ -r "$folder/$1.txt" ] || fail 2 "there is no table '$1'; tables are the .txt of $folder"
      tables+=("$folder/$1.txt")
      ;;
  esac
  shift
done
[ ${#tables[@]} -gt 0 ] || tables=("$folder"/*.txt)

# A list disturbs no run that is under way.
work=$build_dir/mutants
if [ "$list" -eq 1 ]; then work=$build_dir/mutants-list; fi
tree=$work/tree
mkdir -p "$work" || fail 6 "cannot make the folder $work"
exec 9>"$work/lock"
flock -n 9 || fail 2 "another run works in $work; wait for it, or give this one a folder in ASHLAR_BUILD_DIR"
. "$here/outcome.sh"
. "$here/tables.sh"

list_mutants "${tables[@]}"
for name in ${from:+"$from"} ${only[@]+"${only[@]}"}; do
  grep -q "^$name " "$work/names" || fail 2 "there is no mutant '$name'; --list names them"
done
if [ "$list" -eq 1 ]; then
  cat "$work/names"
  exit 0
fi

# The mutants of this call.
chosen=$work/chosen
awk -v from="$from" -v only=" ${only[*]-} " '
  $1 == from { from = "" }
  from == "" && (only ~ /^ *$/ || index(only, " " $1 " ")) { print }' "$work/names" >"$chosen"
while read -r name file; do cat "$work/table/$name/runs"; done <"$chosen" | sort -u >"$work/runs"
suites=$(cut -d ' ' -f 1 "$work/runs" | sort -u)
targets=() binary=0
for suite in $suites; do
  grep -q "^ashlar_add_test($suite[ )]" "$root/tests/CMakeLists.txt" || fail 70 "a table names a suite '$suite' that there is not"
  targets+=("test_$suite")
  if starts_binary "$suite"; then binary=1; fi
done
if [ "$binary" -eq 1 ]; then targets+=(ashlar); fi

# copy_tree: the files of this tree that differ in the copy; what is gone here goes there. Only what changes is built.
copy_tree() {
  mkdir -p "$tree"
  (cd "$root" && { git ls-files --cached --others --exclude-standard 2>/dev/null || find . -path ./build -prune -o -type f -print; }) |
    sed 's|^\./||' | sort >"$work/files"
  while read -r file; do
    [ ! -f "$root/$file" ] || cmp -s "$root/$file" "$tree/$file" || (cd "$root" && cp --parents "$file" "$tree")
  done <"$work/files"
  (cd "$tree" && find . -path ./build -prune -o -type f -print) | sed 's|^\./||' | sort |
    comm -13 "$work/files" - | (cd "$tree" && xargs -r -d '\n' rm)
}

# build_tree [TARGET...]: with the flags of an ordinary build, so that ccache knows it. Warnings are off for mutants:
# what one no longer uses must not keep it from being built.
printf '#!/bin/sh\nexec "$@" -w\n' >"$work/without_warnings"
chmod +x "$work/without_warnings"
build_tree() {
  if [ ! -e "$tree/build/build.ninja" ]; then
    local werror=()
    command -v ccache >/dev/null || werror=(-DASHLAR_WERROR=OFF)
    (cd "$tree" && cmake --preset release ${werror[@]+"${werror[@]}"}) </dev/null >"$work/build.log" 2>&1 || return 1
  fi
  timeout -k 10 3600 nice -n 5 cmake --build "$tree/build" -j "$(nproc)" --target "$@" </dev/null >"$work/build.log" 2>&1 9>&-
}

started=$(now_us)
copy_tree
build_tree "${targets[@]}" ||
  { tail -n 20 "$work/build.log" >&2; fail 70 "the tree does not build, see above; all of it in $work/build.log"; }
keep_baseline "${targets[@]}"
while read -r suite ranks filter; do
  measure_baseline "$suite" "$ranks" "$filter" ||
    fail 70 "the tests must pass before a mutant means anything: $suite on $ranks: $outcome $test; log: $tests_log"
done <"$work/runs"
echo "the tests pass without a mutant, $(seconds_since "$started") s"

# judge NAME: builds the planted mutant and runs its tests. Sets `verdict` and `how`.
judge() {
  local suite ranks filter needed=()
  verdict=MISSED how=
  for suite in $(cut -d ' ' -f 1 "$work/table/$1/runs" | sort -u); do
    needed+=("test_$suite")
    if starts_binary "$suite"; then needed+=(ashlar); fi
  done
  if ! CCACHE_PREFIX=$work/without_warnings build_tree "${needed[@]}"; then
    verdict=BROKEN how="is not built: $(grep -m 1 -E 'error|undefined reference' "$work/build.log" || tail -n 1 "$work/build.log")"
    return 0
  fi
  while read -r suite ranks filter <&4; do
    if ! passes "$suite" "$ranks" "$filter"; then return 0; fi
  done 4<"$work/table/$1/runs"
}

declare -A count=([caught]=0 [crash]=0 [hang]=0 [MISSED]=0 [BROKEN]=0)
missed=()
while read -r name file <&3; do
  began=$(now_us)
  cp "$work/table/$name/mutated" "$tree/$file"
  judge "$name"
  count[$verdict]=$((count[$verdict] + 1))
  case $verdict in MISSED | BROKEN) missed+=("$name") ;; esac
  printf '%-7s %-46s %6s s  %s\n' "$verdict" "$name" "$(seconds_since "$began")" "$how"
  cp "$root/$file" "$tree/$file"
done 3<"$chosen"

[ ${#missed[@]} -eq 0 ] || printf 'missed or broken: %s\n' "${missed[*]}"
all=$(wc -l <"$chosen")
good=$((count[caught] + count[crash] + count[hang]))
echo "$good of $all mutants caught (${count[caught]} by assertion, ${count[crash]} crashes, ${count[hang]} hangs)," \
  "${count[MISSED]} missed, ${count[BROKEN]} broken, $(seconds_since "$started") s"
[ "${count[BROKEN]}" -eq 0 ] && [ $((good * 100)) -ge $((all * 98)) ]
