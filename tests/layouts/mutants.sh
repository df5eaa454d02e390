#!/usr/bin/env bash
# Plants the errors of mutants.txt, one at a time, and says which the layout tests catch; --help tells the options.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/launch/scripts/common.sh"

usage() {
  cat <<'END'
tests/layouts/mutants.sh [--list] [--only NAME]... [--from NAME]

Copies the tree to build/mutants/tree, checks that its layout tests pass, then for each mutant of the table changes the
copy, builds it and runs the tests until one fails. Prints a line each and `N of M mutants caught`; exit code 1 when
fewer than 98% are. A crash or a hang that happens twice counts as caught.

  --list       only checks that each mutant of the table still fits the sources, and lists them
  --only NAME  only this mutant (may be given several times)
  --from NAME  this mutant and those behind it: goes on with a run that was stopped
  --help       this text
END
}

table=${ASHLAR_MUTANTS:-$root/tests/layouts/mutants.txt}
only=() from= list=0
while [ $# -gt 0 ]; do
  case $1 in
    --only | --from)
      [ $# -ge 2 ] || fail 2 "$1 needs the name of a mutant; --list names them"
      if [ "$1" = --only ]; then only+=("$2"); else from=$2; fi
      shift
      ;;
    --list) list=1 ;;
    -h | --help) usage && exit 0 ;;
    *) fail 2 "unknown argument '$1'; --help lists what there is" ;;
  esac
  shift
done

work=$build_dir/mutants
tree=$work/tree
mkdir -p "$work" || fail 6 "cannot make the folder $work"

# read_table: a folder $work/table/NAME for each mutant with what the table says of it and `mutated`, its changed file;
# lines `NAME FILE` on standard output, in order.
read_table() {
  rm -rf "$work/table"
  awk -v dir="$work/table" '
    function finish() {
      if (name == "") return
      if (system("mkdir -p \047" dir "/" name "\047") != 0) exit 1
      printf "%s", old >(dir "/" name "/old"); close(dir "/" name "/old")
      printf "%s", new >(dir "/" name "/new"); close(dir "/" name "/new")
      print ranks >(dir "/" name "/ranks"); close(dir "/" name "/ranks")
      print name, file
      name = ""
    }
    /^@ / { finish(); file = $2 }
    /^= / { finish(); name = $2; $1 = $2 = ""; ranks = NF > 2 ? $0 : "2 4"; old = new = ""; olds = news = 0 }
    /^- / { old = old (olds++ ? "\n" : "") substr($0, 3) }
    /^\+ / { new = new (news++ ? "\n" : "") substr($0, 3) }
    END { finish() }' "$1"
}

# mutate FILE OLD NEW: FILE with the text of OLD, which must stand in it exactly once, replaced by that of NEW.
mutate() {
  awk -v old_file="$2" -v new_file="$3" '
    function text_of(file,   text, line, n) {
      while ((getline line <file) > 0) text = text (n++ ? "\n" : "") line
      return text
    }
    { text = text $0 "\n" }
    END {
      old = text_of(old_file); at = index(text, old)
      if (old == "" || at == 0 || index(substr(text, at + 1), old) != 0) exit 1
      printf "%s%s%s", substr(text, 1, at - 1), text_of(new_file), substr(text, at + length(old))
    }' "$1"
}

read_table "$table" >"$work/names"
[ -z "$(cut -d ' ' -f 1 "$work/names" | sort | uniq -d)" ] || fail 70 "two mutants of $table have one name"
for name in ${from:+"$from"} ${only[@]+"${only[@]}"}; do
  grep -q "^$name " "$work/names" || fail 2 "there is no mutant '$name'; --list names them"
done
while read -r name file; do
  mutate "$root/$file" "$work/table/$name/old" "$work/table/$name/new" >"$work/table/$name/mutated" ||
    fail 70 "$table is out of date: what mutant $name replaces does not stand exactly once in $file; mend its '-' lines"
done <"$work/names"
if [ "$list" -eq 1 ]; then
  cat "$work/names"
  exit 0
fi

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

# Warnings are off: what a mutant no longer uses must not keep it from being built.
build_tree() {
  [ -e "$tree/build/build.ninja" ] ||
    (cd "$tree" && cmake --preset release -DASHLAR_WERROR=OFF) >"$work/build.log" 2>&1 || return 1
  nice -n 5 cmake --build "$tree/build" -j "$(nproc)" --target test_layouts >"$work/build.log" 2>&1
}

tests_pid=
trap '[ -z "$tests_pid" ] || kill "$tests_pid" 2>/dev/null || true' EXIT

# runs_clean RANKS: whether the tests pass on so many ranks; ends them at the first failure. Sets `how` it failed.
runs_clean() {
  local log=$work/tests.log code=0 test failure='^\[  FAILED  \]|: Failure$'
  ASHLAR_TEST_SECONDS=30 timeout -k 5 600 "$root/launch/scripts/with_ranks.sh" "$1" "$tree/build/tests/test_layouts" \
    --gtest_color=no --gtest_filter='-*Checkpoint*:*Bubble*' </dev/null >"$log" 2>&1 &
  tests_pid=$!
  while kill -0 "$tests_pid" 2>/dev/null && ! grep -qsE "$failure" "$log"; do sleep 0.1; done
  kill "$tests_pid" 2>/dev/null || true
  wait "$tests_pid" 2>/dev/null || code=$?
  tests_pid=
  test=$(awk -v failure="${failure//\\/\\\\}" '/^\[ RUN/ { test = $NF } $0 ~ failure { exit } END { print test }' "$log")
  if grep -qE "$failure" "$log"; then
    how="fails on $1: $test"
  elif grep -q 'did not end within' "$log"; then
    how="hangs on $1: $test"
  elif ! grep -q '^\[  PASSED  \]' "$log"; then
    how="ends with code $code on $1: ${test:-before the first test}"
  else
    how=
    return 0
  fi
  return 1
}

# passes RANKS: the same; but on a busy machine anything may seem to hang, or be ended by others, once.
passes() { runs_clean "$1" || { [[ $how != fails* ]] && runs_clean "$1"; }; }

started=$(now_us)
copy_tree
build_tree || { tail -n 20 "$work/build.log" >&2; fail 70 "the tree does not build, see above; all of it in $work/build.log"; }
for ranks in 2 4; do
  passes "$ranks" || fail 70 "the tests must pass before a mutant means anything: it $how; log: $work/tests.log"
done
echo "the tests pass without a mutant, $(seconds_since "$started") s"

caught=0 all=0 missed=()
[ -n "$from" ] && skipping=1 || skipping=0
while read -r name file <&3; do
  if [ "$name" = "$from" ]; then skipping=0; fi
  if [ "$skipping" -eq 1 ]; then continue; fi
  if [ ${#only[@]} -gt 0 ] && [[ " ${only[*]} " != *" $name "* ]]; then continue; fi
  all=$((all + 1))
  began=$(now_us)
  cp "$work/table/$name/mutated" "$tree/$file"
  verdict=MISSED how= counts=$(cat "$work/table/$name/ranks")
  build_tree || verdict=UNBUILT counts= how=$(grep -m 1 'error' "$work/build.log")
  for ranks in $counts; do
    if passes "$ranks"; then continue; fi
    verdict=caught
    break
  done
  if [ "$verdict" = caught ]; then caught=$((caught + 1)); else missed+=("$name"); fi
  printf '%-7s %-46s %6s s  %s\n' "$verdict" "$name" "$(seconds_since "$began")" "$how"
  cp "$root/$file" "$tree/$file"
done 3<"$work/names"

[ ${#missed[@]} -eq 0 ] || printf 'missed: %s\n' "${missed[*]}"
echo "$caught of $all mutants caught, $(seconds_since "$started") s"
[ $((caught * 100)) -ge $((all * 98)) ]
