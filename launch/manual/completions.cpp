#include "launch/manual/completions.h"

#include "core/base/strings.h"
#include "launch/config/schema.h"
#include "launch/version/version.h"

namespace ashlar::manual {

namespace {

/// How bash and zsh find what may stand at the cursor. PLACE is a command, or a command and its subcommand.
constexpr const char* kWalk = R"sh(
# Prints the place of the words before the cursor.
_ashlar_place() {
  local place= skip= word
  for word; do
    if [ -n "$skip" ]; then skip=; continue; fi
    case $word in
      -*) if _ashlar_values "$place" "$word" >/dev/null; then skip=1; fi; continue ;;
    esac
    case $place in
      ''|launch) place=$word ;;
      *' '*) ;;
      *) case " $(_ashlar_subcommands "$place" | tr '\n' ' ') " in *" $word "*) place="$place $word" ;; esac ;;
    esac
  done
  printf '%s\n' "$place"
}

# Prints what may stand at the cursor besides files, one a line: _ashlar_candidates PLACE WORD PREVIOUS_WORD
_ashlar_candidates() {
  case $3 in -*) if _ashlar_values "$1" "$3"; then return; fi ;; esac
  case $2 in
    -*) _ashlar_options "$1" ;;
    *=*) _ashlar_key_values "${2%%=*}" ;;
    */*) ;;
    *.*) _ashlar_keys "$1" ;;
    *) _ashlar_subcommands "$1"; _ashlar_keys "$1" | sed 's/\..*/./' | uniq ;;
  esac
}
)sh";

// Of `key=value` bash completes what stands behind the last of COMP_WORDBREAKS, and its own words are cut there.
constexpr const char* kBashEnd = R"sh(
_ashlar() {
  local line=${COMP_LINE:0:COMP_POINT} place word previous= cut=
  local -a words
  read -ra words <<<"$line"
  case $line in *[[:space:]]) words+=('') ;; esac
  word=${words[-1]}
  if [ "${#words[@]}" -gt 2 ]; then previous=${words[-2]}; fi
  place=$(_ashlar_place "${words[@]:1:${#words[@]}-2}")
  case $COMP_WORDBREAKS in *=*) case $word in *=*) cut=${word%%=*}= ;; esac ;; esac
  COMPREPLY=()
  local candidate
  while read -r candidate; do
    case $candidate in "$word"*) COMPREPLY+=("${candidate#"$cut"}") ;; esac
  done < <(_ashlar_candidates "$place" "$word" "$previous")
  case $word in
    -*|*=*) ;;
    *) if [ -n "$place" ] && [ "$place" != launch ] && ! _ashlar_values "$place" "$previous" >/dev/null; then
         while read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -f -- "$word")
         compopt -o filenames 2>/dev/null
       fi ;;
  esac
  if [ "${#COMPREPLY[@]}" -eq 1 ]; then case ${COMPREPLY[0]} in *[.=]) compopt -o nospace 2>/dev/null ;; esac; fi
}
complete -o default -F _ashlar ashlar
)sh";

constexpr const char* kZshEnd = R"sh(
_ashlar() {
  local place word=${words[CURRENT]} previous=
  if (( CURRENT > 2 )); then previous=${words[CURRENT-1]}; fi
  place=$(_ashlar_place "${(@)words[2,CURRENT-1]}")
  local -a candidates
  candidates=(${(f)"$(_ashlar_candidates "$place" "$word" "$previous")"})
  compadd -S '' -- ${(M)candidates:#*[.=]}
  compadd -- ${candidates:#*[.=]}
  case $word in
    -*) ;;
    *=*) compset -P '*='; _files ;;
    *) if [[ -n $place && $place != launch && -z "$(_ashlar_values "$place" "$previous")" ]]; then _files; fi ;;
  esac
}
if [ "${funcstack[1]}" = _ashlar ]; then _ashlar "$@"; else compdef _ashlar ashlar; fi
)sh";

constexpr const char* kFishBegin = R"sh(
# Whether the words before the cursor lead to this command, or command and subcommand.
function __ashlar_at
  test "$(__ashlar_path)" = "$argv[1]"
end

function __ashlar_path
  set -l words (commandline -opc)
  set -e words[1]
  set -l path
  set -l skip
  for word in $words
    if test -n "$skip"
      set skip
    else if string match -q -- '-*' $word
      contains -- $word $__ashlar_launch_values; and test "$path" = launch; and set skip 1
    else if test (count $path) -eq 0; or test "$path" = launch
      set path $word
    else if test (count $path) -eq 1; and contains -- "$path $word" $__ashlar_paths
      set -a path $word
    end
  end
  echo "$path"
end

# Keys that fit the word at the cursor: sections, keys of a section, values of a key.
function __ashlar_keys
  set -l word (commandline -ct)
  if string match -q -- '*=*' $word
    __ashlar_key_values (string split -m 1 = -- $word)[1]
  else if string match -q -- '*.*' $word
    printf '%s\n' $argv
  else
    string replace -r '\..*' . -- $argv | uniq
  end
end
)sh";

bool matches(const config::KeySpec& spec, const std::string& key) {
  return key == "section.key" || key == spec.name() || key == str_cat(spec.section, ".key");
}

/// Returns the keys that are accepted, each with `=` if it has a value, separated by spaces.
std::string keys_of(const Syntax& syntax) {
  std::string keys;
  for (const config::KeySpec& spec : config::schema()) {
    bool given = false;
    for (const std::string& key : syntax.keys) given = given || matches(spec, key);
    if (given || syntax.explains_keys) keys += str_cat(keys.empty() ? "" : " ", spec.name(), given ? "=" : "");
  }
  return keys;
}

/// Returns the words that a key accepts, each with `before` in front of it, quoted for the shells: some are formulas.
std::string key_words(const config::KeySpec& spec, const std::string& before) {
  const bool is_bool = spec.type == config::KeyType::kBool;
  std::string words;
  for (const std::string_view word : is_bool ? config::split_words("true|false") : config::words_of(spec))
    words += str_cat(words.empty() ? "'" : " '", before, word, "'");
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += str_cat(text.empty() ? "" : " ", word);
  return text;
}

/// A command or subcommand with its syntax.
struct Place {
  std::string path;
  Syntax syntax;
  std::vector<std::string> subcommands;
};

std::vector<Place> places_of(std::span<const CommandText> commands) {
  std::vector<Place> places(1);
  for (const CommandText& command : commands) {
    places[0].subcommands.emplace_back(command.name);
    const std::vector<Syntax> all = syntax_of(command);
    Place own{.path = std::string(command.name), .syntax = all[0]};
    for (size_t i = 1; i < all.size(); ++i) own.subcommands.push_back(all[i].name);
    places.push_back(std::move(own));
    for (size_t i = 1; i < all.size(); ++i)
      places.push_back({.path = str_cat(command.name, " ", all[i].name), .syntax = all[i]});
  }
  places[0].syntax.options = {{.name = "--help"}, {.name = "--version"}};
  for (Place& place : places)
    if (place.path == "launch") place.subcommands = places[0].subcommands;
  return places;
}

std::string heading(const char* shell) {
  return str_cat("# Completions of ashlar ", launch::version(), " for ", shell, ", written by `ashlar completions ",
                 shell, "`.\n");
}

/// A function of bash and zsh that prints the words of a row, one a line; it fails for what has no row.
class Rows {
 public:
  explicit Rows(std::string name) : text_(str_cat(name, "() {\n  case \"$*\" in\n")) {}
  void add(const std::string& path, const std::string& words) {
    text_ +=
        str_cat("    '", path, "') ", words.empty() ? "" : "printf '%s\\n' ", words, words.empty() ? "" : " ", ";;\n");
  }
  std::string text() const { return text_ + "    *) return 1 ;;\n  esac\n}\n"; }

 private:
  std::string text_;
};

std::string tables(const std::vector<Place>& places) {
  Rows subcommands("_ashlar_subcommands"), options("_ashlar_options"), values("_ashlar_values"), keys("_ashlar_keys"),
      key_values("_ashlar_key_values");
  for (const Place& place : places) {
    if (!place.subcommands.empty()) subcommands.add(place.path, joined(place.subcommands));
    std::string names;
    for (const Option& option : place.syntax.options) {
      names += option.name + " ";
      if (option.takes_value) values.add(str_cat(place.path, " ", option.name), joined(option.words));
    }
    options.add(place.path, names + (place.path.empty() ? "" : "--help"));
    if (const std::string all = keys_of(place.syntax); !all.empty()) keys.add(place.path, all);
  }
  for (const config::KeySpec& spec : config::schema())
    if (const std::string words = key_words(spec, spec.name() + "="); !words.empty())
      key_values.add(spec.name(), words);
  return subcommands.text() + options.text() + values.text() + keys.text() + key_values.text();
}

std::string fish_option(const std::string& condition, const Option& option) {
  const bool old_style = !option.name.starts_with("--") && option.name.size() > 2;
  const std::string name = option.name.substr(option.name.find_first_not_of('-'));
  std::string line = str_cat("complete -c ashlar -n ", condition,
                             option.name.starts_with("--") && name.size() > 1 ? " -l "
                             : old_style                                      ? " -o "
                                                                              : " -s ",
                             name);
  if (option.takes_value) line += option.words.empty() ? " -r" : str_cat(" -xa '", joined(option.words), "'");
  return line + "\n";
}

std::string fish(const std::vector<Place>& places, std::span<const CommandText> commands) {
  std::string paths, launch_values, rules, values = "function __ashlar_key_values\n  switch $argv[1]\n";
  for (const CommandText& command : commands)
    for (const char* place : {"", "launch"})
      rules += str_cat("complete -c ashlar -n '__ashlar_at \"", place, "\"' -fa ", command.name, " -d \"",
                       command.summary, "\"\n");
  for (const Place& place : places) {
    const std::string condition = str_cat("'__ashlar_at \"", place.path, "\"'");
    if (place.path.find(' ') != std::string::npos) paths += str_cat(" '", place.path, "'");
    if (!place.path.empty() && place.path != "launch" && !place.subcommands.empty())
      rules += str_cat("complete -c ashlar -n ", condition, " -fa '", joined(place.subcommands), "'\n");
    for (const Option& option : place.syntax.options) {
      rules += fish_option(condition, option);
      if (place.path == "launch" && option.takes_value) launch_values += " " + option.name;
    }
    if (const std::string keys = keys_of(place.syntax); !keys.empty())
      rules += str_cat("complete -c ashlar -n ", condition, " -a '(__ashlar_keys ", keys, ")'\n");
  }
  for (const config::KeySpec& spec : config::schema())
    if (const std::string words = key_words(spec, spec.name() + "="); !words.empty())
      values += str_cat("    case ", spec.name(), "\n      printf '%s\\n' ", words, "\n");
  return str_cat(heading("fish"), "set -g __ashlar_paths", paths, "\nset -g __ashlar_launch_values", launch_values,
                 "\n", kFishBegin, values, "  end\nend\n", rules);
}

}  // namespace

std::string completions(Shell shell, std::span<const CommandText> commands) {
  const std::vector<Place> places = places_of(commands);
  switch (shell) {
    case Shell::kBash: return heading("bash") + tables(places) + kWalk + kBashEnd;
    case Shell::kZsh: return "#compdef ashlar\n" + heading("zsh") + tables(places) + kWalk + kZshEnd;
    case Shell::kFish: return fish(places, commands);
  }
  throw Bug("Shell out of range");
}

}  // namespace ashlar::manual
