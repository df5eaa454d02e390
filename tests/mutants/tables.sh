# The tables of mutants (sourced by mutants.sh and today.sh). Expects common.sh, `root`, `work`.
# shellcheck shell=bash

# read_tables FILE...: a folder $work/table/NAME for each mutant with what its table says of it: old, new, runs, and sources,
# the file itself or, of a header, those beside it; lines `NAME FILE` on standard output, in order.
read_tables() {
  rm -rf "$work/table"
  awk -v dir="$work/table" '
    function say(what, text) { printf "%s", text >(dir "/" name "/" what); close(dir "/" name "/" what) }
    function finish(   i, text) {
      if (name == "") return
      if (system("mkdir -p \047" dir "/" name "\047") != 0) exit 1
      say("old", old); say("new", new)
      text = own != "" ? own : common
      if (ranks != "") {
        split(common, run, " ")
        text = ""
        for (i = 1; i <= split(ranks, counts, " "); ++i) text = text run[1] " " counts[i] " " run[3] "\n"
      }
      say("runs", text)
      say("sources", sources)
      print name, file
      name = ""
    }
    FNR == 1 { finish(); common = "" }
    /^@ / {
      finish()
      file = $2
      sources = file ~ /\.(cpp|cu)$/ ? file "\n" : ""
      for (i = 3; i <= NF; ++i) sources = sources $i "\n"
    }
    /^% / { if (name == "") { if (!listing) common = ""; common = common substr($0, 3) "\n" } else own = own substr($0, 3) "\n" }
    { listing = /^% / && name == "" }
    /^= / { finish(); name = $2; $1 = $2 = ""; gsub(/^ +/, ""); ranks = $0; old = new = own = ""; olds = news = 0 }
    /^- / { old = old (olds++ ? "\n" : "") substr($0, 3) }
    /^\+ / { new = new (news++ ? "\n" : "") substr($0, 3) }
    END { finish() }' "$@"
}

# mutate FILE FOLDER: FILE with the text of FOLDER/old, which must stand in it exactly once, replaced by that of
# FOLDER/new. Says what is wrong with the table, if anything is, and fails then.
mutate() {
  awk -v folder="$2" '
    function text_of(file,   text, line, n) {
      while ((getline line <file) > 0) text = text (n++ ? "\n" : "") line
      return text
    }
    function wrong(what) { print what >"/dev/stderr"; failed = 1; exit 1 }
    { text = text $0 "\n" }
    END {
      if (failed) exit 1
      old = text_of(folder "/old"); new = text_of(folder "/new"); at = index(text, old)
      if (old == "" || at == 0 || index(substr(text, at + 1), old) != 0)
        wrong("out of date: what it replaces does not stand exactly once in the file; fix its \047-\047 lines")
      if (old == new) wrong("one that changes nothing; fix its \047+\047 lines")
      while ((getline line <(folder "/runs")) > 0) { ++runs; if (split(line, parts, " ") != 3) runs = -1000 }
      if (runs < 1) wrong("one that no test is named for; give its table lines \047% SUITE RANKS FILTER\047")
      printf "%s%s%s", substr(text, 1, at - 1), new, substr(text, at + length(old))
    }' "$1"
}

# list_mutants TABLE...: lines `NAME FILE` into $work/names, and for each a folder $work/table/NAME with `mutated`, its
# file with the error in it. Ends with 70 where a table is wrong.
list_mutants() {
  local name file problem
  read_tables "$@" >"$work/names"
  [ -z "$(cut -d ' ' -f 1 "$work/names" | sort | uniq -d)" ] ||
    fail 70 "two mutants have one name: $(cut -d ' ' -f 1 "$work/names" | sort | uniq -d | tr '\n' ' ')"
  while read -r name file; do
    problem=$(mutate "$root/$file" "$work/table/$name" 2>&1 >"$work/table/$name/mutated") ||
      fail 70 "mutant $name of $file is ${problem:-not readable}"
  done <"$work/names"
}
