#!/usr/bin/env bash
# Plants some mutants of the tables into the programs that are built, others each day; --help tells more.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$root/launch/scripts/common.sh"

usage() {
  cat <<'END'
tests/mutants/today.sh [--count N] [--day N] TABLE...

Takes N mutants of the tables (12; others each day, all of them in turn), compiles the one file that each changes, links
it into its suite's program beside what an ordinary build has made, and runs the tests that its table names until one
fails. Verdicts as of mutants.sh, whose tables these are, and `skipped` where a program is not built on this machine;
mutants of headers and of suites that start build/ashlar are left to it. Exit code 1 when one is missed or broken. The build must be up to date.

  --count N  how many
  --day N    as on that day, counted from 1970 (today)
  --help     this text
END
}

folder=${ASHLAR_MUTANTS:-$here}
tables=() count=12 day=$(($(date +%s) / 86400))
while [ $# -gt 0 ]; do
  case $1 in
    --count | --day)
      [[ ${2-} =~ ^[1-9][0-9]{0,6}$ ]] || fail 2 "$1 needs a positive whole number, got '${2-}'"
      if [ "$1" = --count ]; then count=$2; else day=$2; fi
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    -*) fail 2 "unknown argument '$1'; --help lists what there is" ;;
    *)
      [ -r "$folder/$1.txt" ] || fail 2 "there is no table '$1'; tables are the .txt of $folder"
      tables+=("$folder/$1.txt")
      ;;
  esac
  shift
done
[ ${#tables[@]} -gt 0 ] || fail 2 "expected tables, got none; --help tells more"

work=$build_dir/mutants-today
tree=$work/tree  # what outcome.sh looks for programs in
mkdir -p "$tree/build/tests" || fail 6 "cannot make the folder $work"
exec 9>"$work/lock"
flock -n 9 || fail 2 "another run works in $work; wait for it, or give this one a folder in ASHLAR_BUILD_DIR"
. "$here/outcome.sh"
. "$here/tables.sh"

list_mutants "${tables[@]}"
# Those that change one object of one program that stands by itself.
while read -r name file; do
  case $file in *.cpp | *.cu) ;; *) continue ;; esac
  suites=$(cut -d ' ' -f 1 "$work/table/$name/runs" | sort -u)
  [ "$(wc -l <<<"$suites")" -eq 1 ] && ! starts_binary "$suites" && echo "$name $file $suites"
done <"$work/names" >"$work/candidates"
all=$(wc -l <"$work/candidates")
[ "$all" -gt 0 ] || fail 70 "none of these tables has a mutant that can be planted so"
[ "$count" -le "$all" ] || count=$all
# In steps of the count from where yesterday's ended: all of them come up in as many days as it takes.
awk -v first=$((day * count % all)) -v count="$count" -v all="$all" '
  { line[NR - 1] = $0 }
  END { for (i = 0; i < count; ++i) print line[(first + i) % all] }' "$work/candidates" >"$work/chosen"

# commands OUTPUT: the last command of the build that makes it, empty when there is none.
commands() { ninja -C "$build_dir" -t commands "$1" 2>/dev/null | tail -n 1; }

# plant NAME FILE SUITE: the suite's program with the mutant. Says why not, when it cannot.
plant() {
  local name=$1 file=$2 suite=$3 object compile link mutated=$work/${file##*/}
  cp "$work/table/$name/mutated" "$mutated"
  object=$(ninja -C "$build_dir" -t inputs "tests/test_$suite" | grep -F -- "/${file##*/}.o" |
    while read -r o; do
      if commands "$o" | grep -qF -- "$root/$file"; then echo "$o"; fi
    done | head -n 1)
  if [ -z "$object" ]; then
    echo "this build has no test_$suite with it"
    return 2
  fi
  compile=$(commands "$object")
  compile=${compile//"$root/$file"/"$mutated"}
  compile=${compile//"$object.d"/"$work/mutant.o.d"}
  compile=${compile//"-o $object"/"-o $work/mutant.o"}
  (cd "$build_dir" && eval "$compile -w") >"$work/build.log" 2>&1 || { grep -m 1 error "$work/build.log"; return 1; }
  link=$(commands "tests/test_$suite")
  if [[ " $link " == *" $object "* ]]; then
    link=${link//" $object "/" $work/mutant.o "}
  else
    # Before the libraries: what it defines is not taken from theirs.
    link=${link/" -o tests/test_$suite"/" $work/mutant.o -o tests/test_$suite"}
  fi
  link=${link//"-o tests/test_$suite"/"-o $tree/build/tests/test_$suite"}
  (cd "$build_dir" && eval "$link") >"$work/build.log" 2>&1 || { tail -n 1 "$work/build.log"; return 1; }
}

started=$(now_us)
mkdir -p "$baseline"
declare -A verdicts=([caught]=0 [crash]=0 [hang]=0 [skipped]=0 [MISSED]=0 [BROKEN]=0)
while read -r name file suite <&3; do
  began=$(now_us)
  verdict=MISSED how=
  ln -sf "$build_dir/tests/test_$suite" "$baseline/test_$suite"
  planted=0
  why=$(plant "$name" "$file" "$suite") || planted=$?
  if [ "$planted" -eq 2 ]; then
    verdict=skipped how=$why
  elif [ "$planted" -ne 0 ]; then
    verdict=BROKEN how="is not built: $why"
  else
    while read -r _ ranks filter <&4; do
      [ -n "${limits["$suite $ranks $filter"]-}" ] || measure_baseline "$suite" "$ranks" "$filter" ||
        fail 70 "the tests must pass before a mutant means anything: $suite on $ranks: $outcome $test; log: $tests_log"
    done 4<"$work/table/$name/runs"
    while read -r _ ranks filter <&4; do
      passes "$suite" "$ranks" "$filter" || break
    done 4<"$work/table/$name/runs"
  fi
  verdicts[$verdict]=$((verdicts[$verdict] + 1))
  printf '%-7s %-46s %6s s  %s\n' "$verdict" "$name" "$(seconds_since "$began")" "$how"
done 3<"$work/chosen"
good=$((verdicts[caught] + verdicts[crash] + verdicts[hang]))
echo "$good of $count mutants caught (of $all that take turns), ${verdicts[skipped]} skipped," \
  "${verdicts[MISSED]} missed, ${verdicts[BROKEN]} broken, $(seconds_since "$started") s"
[ $((good + verdicts[skipped])) -eq "$count" ]
