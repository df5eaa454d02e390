#!/usr/bin/env bash
# Plants the mutants of some tables into the programs that are built; --help tells more.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$root/launch/scripts/common.sh"

usage() {
  cat <<'END'
tests/mutants/relink.sh TABLE...
tests/mutants/relink.sh --only NAME... TABLE...

For each mutant of the tables: compiles the one file that it changes, or the files that its table names beside a header,
links it into its suite's program beside what an ordinary build has made, and runs the tests that its table names until
one fails. Verdicts as of mutants.sh, whose tables these are, and `skipped` where a program is not built on this machine.
Mutants of other headers and of suites that start build/ashlar are left to mutants.sh and named.
Exit code 1 when one is missed, broken or left. The build must be up to date.

  --only NAME  only this mutant (may be given several times)
  --help       this text
END
}

folder=${ASHLAR_MUTANTS:-$here}
tables=() only=()
while [ $# -gt 0 ]; do
  case $1 in
    --only)
      [ $# -ge 2 ] || fail 2 "--only needs the name of a mutant"
      only+=("$2")
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

work=${ASHLAR_MUTANTS_WORK:-$build_dir/mutants-relinked}
tree=$work/tree  # what outcome.sh looks for programs in
mkdir -p "$tree/build/tests" || fail 6 "cannot make the folder $work"
exec 9>"$work/lock"
flock -n 9 || fail 2 "another run works in $work; wait for it, or give this one a folder in ASHLAR_MUTANTS_WORK"
. "$here/outcome.sh"
. "$here/tables.sh"

list_mutants "${tables[@]}"
for name in ${only[@]+"${only[@]}"}; do
  grep -q "^$name " "$work/names" || fail 2 "there is no mutant '$name' in these tables"
done
# Those that change objects of one program that stands by itself, and the others.
: >"$work/candidates"
: >"$work/left"
while read -r name file; do
  suites=$(cut -d ' ' -f 1 "$work/table/$name/runs" | sort -u)
  if [ -s "$work/table/$name/sources" ] && [ "$(wc -l <<<"$suites")" -eq 1 ] && ! starts_binary "$suites"; then
    echo "$name $file $suites" >>"$work/candidates"
  else
    echo "$name" >>"$work/left"
  fi
done <"$work/names"
all=$(wc -l <"$work/candidates")
[ "$all" -gt 0 ] || fail 70 "none of these tables has a mutant that can be planted so"
if [ ${#only[@]} -gt 0 ]; then
  for name in "${only[@]}"; do
    grep "^$name " "$work/candidates" || fail 2 "mutant '$name' can not be planted so; mutants.sh does it"
  done >"$work/chosen"
  : >"$work/left"
else
  cp "$work/candidates" "$work/chosen"
fi
count=$(wc -l <"$work/chosen")

# commands OUTPUT: the last command of the build that makes it, empty when there is none.
commands() { ninja -C "$build_dir" -t commands "$1" 2>/dev/null | tail -n 1; }

# object_of SUITE SOURCE: the object of the suite's program that is made of it; the watched one where there are two.
object_of() {
  local inputs=$work/inputs.$1
  [ -e "$inputs" ] || ninja -C "$build_dir" -t inputs "tests/test_$1" 2>/dev/null | grep '\.o$' >"$inputs" || true
  grep -F -- "/${2##*/}.o" "$inputs" | sort -r | while read -r o; do
    if commands "$o" | grep -qF -- "$root/$2"; then echo "$o"; fi
  done | awk '/ashlar_watched/ { print; found = 1; exit } { other = $0 } END { if (!found && other) print other }'
}

# run_changed COMMAND OUTPUT NEW OPTION: the build's command for OUTPUT with the changed file, to NEW. Says why it fails.
run_changed() {
  local command=$1
  command=${command//"$root/$file"/"$overlay/$file"}
  command=${command/"-I$root "/"-I$overlay -I$root "}
  command=${command//"$2.d"/"$work/mutant.d"}
  command=${command//"-o $2"/"-o $3"}
  (cd "$build_dir" && eval "$command $4") >"$work/build.log" 2>&1 ||
    { grep -m 1 -E 'error|undefined reference' "$work/build.log" || tail -n 1 "$work/build.log"; return 1; }
}

# plant_ptx NAME: the program with other PTX of the small kernels of tests/gpu/conformance, made of the changed header.
plant_ptx() {
  local source target ptx made
  rm -rf "$work/ptx"
  cp -r "$build_dir/tests/ptx_conformance" "$work/ptx" 2>/dev/null || { echo "this build has no PTX" && return 2; }
  while read -r source; do
    for target in compute_80 compute_90a; do
      ptx=tests/ptx_conformance/$target/${source##*/}.ptx made=$(commands "$ptx")
      [ -n "$made" ] || { echo "this build has no $ptx" && return 2; }
      run_changed "$made" "$build_dir/$ptx" "$work/ptx/$target/${source##*/}.ptx" '' || return 1
    done
  done <"$work/table/$1/sources"
  printf '#!/bin/sh\nASHLAR_CONFORMANCE_PTX=%q exec %q "$@"\n' "$work/ptx" "$build_dir/tests/test_ptx" >"$planted_program"
  chmod +x "$planted_program"
}

# plant NAME FILE SUITE: the suite's program with the mutant. Says why not, when it cannot.
plant() {
  local name=$1 file=$2 suite=$3 overlay=$work/overlay planted_program=$tree/build/tests/test_$3
  local source object link new before number=0
  rm -rf "$overlay" "$planted_program"
  mkdir -p "$overlay/$(dirname "$file")"
  cp "$work/table/$name/mutated" "$overlay/$file"
  if [ "$suite" = ptx ]; then
    plant_ptx "$name"
    return
  fi
  link=$(commands "tests/test_$suite")
  while read -r source; do
    object=$(object_of "$suite" "$source")
    [ -n "$object" ] || { echo "this build has no test_$suite with $source" && return 2; }
    number=$((number + 1)) new=$work/mutant-$number.o
    run_changed "$(commands "$object")" "$object" "$new" -w || return 1
    # Before all others: what it defines is not taken from them, nor inline functions of a header.
    link=${link//" $object "/" "}
    before=${link%%.o *}
    before=${before% *}
    link="$before $new${link#"$before"}"
  done <"$work/table/$name/sources"
  link=${link//"-o tests/test_$suite"/"-o $planted_program"}
  (cd "$build_dir" && eval "$link") >"$work/build.log" 2>&1 || { tail -n 1 "$work/build.log"; return 1; }
}

rm -f "$work"/inputs.*
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
if [ -s "$work/left" ]; then echo "left to mutants.sh: $(tr '\n' ' ' <"$work/left")"; fi
echo "$good of $count mutants caught (${verdicts[crash]} crashes, ${verdicts[hang]} hangs)," \
  "${verdicts[skipped]} skipped, ${verdicts[MISSED]} missed, ${verdicts[BROKEN]} broken, $(seconds_since "$started") s"
[ $((good + verdicts[skipped])) -eq "$count" ] && [ ! -s "$work/left" ]
