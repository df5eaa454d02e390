# The tables of mutants (sourced by mutants.sh and relink.sh). Expects common.sh, `root`, `work`.
# shellcheck shell=bash

# read_tables FILE...: a folder $work/table/NAME for each mutant with what its table says of it: function, old, new, runs,
# and sources, the file itself or, of a header, those beside it; lines `NAME FILE` on standard output, in order.
read_tables() {
  rm -rf "$work/table"
  awk -v dir="$work/table" '
    function say(what, text) { printf "%s", text >(dir "/" name "/" what); close(dir "/" name "/" what) }
    function finish(   i, text) {
      if (name == "") return
      if (system("mkdir -p \047" dir "/" name "\047") != 0) exit 1
      say("function", inside); say("old", old); say("new", new)
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
    /^= / { finish(); name = $2; $1 = $2 = ""; gsub(/^ +/, ""); ranks = $0; inside = old = new = own = ""; olds = news = 0 }
    /^: / { inside = $2 }
    /^- / { old = old (olds++ ? "\n" : "") substr($0, 3) }
    /^\+ / { new = new (news++ ? "\n" : "") substr($0, 3) }
    END { finish() }' "$@"
}

# mutate FILE FOLDER: FILE with the text of FOLDER/old replaced by that of FOLDER/new. White space aside, the text must
# stand exactly once in the function of that name (all of that name, where there are several), or in the file where
# FOLDER/function is empty. Says what is wrong with the table, if anything is, and fails then.
mutate() {
  awk -v folder="$2" '
    function text_of(file,   text, line, n) {
      while ((getline line <file) > 0) text = text (n++ ? "\n" : "") line
      return text
    }
    function wrong(what) { print what >"/dev/stderr"; failed = 1; exit 1 }
    # A line of code without what its brackets do not count in.
    function code_of(text) {
      gsub(/\\./, "", text); gsub(/"[^"]*"/, "", text); gsub(/\047[^\047]*\047/, "", text)
      sub(/[ ]*\/\/.*$/, "", text)
      return text
    }
    # Where the definition that begins in line `i` ends, 0 when none of `name` does. The layout of clang-format tells:
    # a body ends with the first brace that is as far in as the line that it begins with.
    function end_of(i, name,   code, at, before, depth, j, margin) {
      code = code_of(line[i])
      if (!match(code, "(^|[^A-Za-z0-9_])" name "(\\(| = \\[| \\{|\\[[^]]*\\] = \\{)")) return 0
      at = RSTART + (substr(code, RSTART, 1) == substr(name, 1, 1) && RSTART == 1 ? 0 : 1)
      before = substr(code, 1, at - 1)
      gsub(/__launch_bounds__\([^)]*\)/, "", before)
      if (before ~ /[^A-Za-z0-9_:<>,&*~\[\] ]/ || before ~ /^ *[:,]/) return 0
      if (before ~ /^ *(return|else|throw|case|new|delete|using|typedef|goto|co_return)[ :]/) return 0
      match(line[i], /^ */); margin = "^" substr(line[i], 1, RLENGTH) "}"
      code = substr(code, at)
      for (j = i; j <= NR && j < i + 40; code = code_of(line[++j])) {
        depth += gsub(/\(/, "(", code) - gsub(/\)/, ")", code)
        if (depth > 0) continue
        if (code ~ /\{ *$/) {
          for (++j; j <= NR; ++j) if (line[j] ~ margin) return j
          return 0
        }
        if (code ~ /\{.*\};? *$/) return j
        if (code ~ /; *$/) return 0
      }
      return 0
    }
    function bare(text) { gsub(/[ \n]+/, "", text); return text }
    # The column of a line at which its nth character that is no blank stands.
    function column(text, n,   i) {
      for (i = 1; n > 0; ++i) if (substr(text, i, 1) != " ") --n
      return i - 1
    }
    { line[NR] = $0 }
    END {
      if (failed) exit 1
      old = text_of(folder "/old"); new = text_of(folder "/new"); name = text_of(folder "/function")
      if (name == "") { for (i = 1; i <= NR; ++i) in_scope[i] = 1 }
      else for (i = 1; i <= NR; ++i) if ((last = end_of(i, name)) > 0) { found = 1; for (j = i; j <= last; ++j) in_scope[j] = 1 }
      if (name != "" && !found) wrong("out of date: the file has no function " name "; fix its \047:\047 line")
      for (i = 1; i <= NR; ++i) {
        begin[i] = length(all)
        all = all (in_scope[i] ? bare(line[i]) : "\001")
      }
      wanted = bare(old); at = index(all, wanted)
      if (wanted == "" || at == 0 || index(substr(all, at + 1), wanted) != 0)
        wrong("out of date: what it replaces does not stand exactly once in " (name == "" ? "the file" : name) "; fix its \047-\047 lines")
      if (old == new) wrong("one that changes nothing; fix its \047+\047 lines")
      while ((getline text <(folder "/runs")) > 0) { ++runs; if (split(text, parts, " ") != 3) runs = -1000 }
      if (runs < 1) wrong("one that no test is named for; give its table lines \047% SUITE RANKS FILTER\047")
      for (first = 1; first < NR && begin[first + 1] < at; ++first) {}
      to = at + length(wanted) - 1
      for (last = first; last < NR && begin[last + 1] < to; ++last) {}
      for (i = 1; i <= NR; ++i) {
        if (i < first || i > last) print line[i]
        if (i == first) printf "%s%s", substr(line[i], 1, column(line[i], at - begin[i]) - 1), new
        if (i == last) print substr(line[i], column(line[i], to - begin[i]) + 1)
      }
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
