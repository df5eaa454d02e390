#include "launch/manual/command_text.h"

#include <algorithm>
#include <sstream>

#include "core/base/strings.h"

namespace ashlar::manual {

namespace {

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_letter(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z'); }
bool is_name_letter(char c) { return is_lower(c) || c == '-' || (c >= '0' && c <= '9'); }

/// True for a word in lower case, such as `build` or `blank-line`.
bool is_plain_word(std::string_view word) {
  return !word.empty() && is_lower(word[0]) && std::ranges::all_of(word, is_name_letter);
}

/// Returns the values in lower case of `fp32|bf16|all`; nothing for a value without alternatives, which is an example.
std::vector<std::string> alternatives(const std::string& value) {
  std::vector<std::string> words;
  if (value.find('|') == std::string::npos) return words;
  std::istringstream stream(value);
  for (std::string word; std::getline(stream, word, '|');) {
    if (!word.empty() && std::ranges::all_of(word, is_name_letter)) words.push_back(word);
  }
  return words;
}

void add(std::vector<Option>& options, Option option) {
  const auto known = std::ranges::find(options, option.name, &Option::name);
  if (known == options.end()) return options.push_back(std::move(option));
  known->takes_value = known->takes_value || option.takes_value;
  if (known->words.empty()) known->words = std::move(option.words);
}

/// Adds the options of a piece of text, each with the word behind it as its value.
void add_options(std::string_view text, std::vector<Option>& options) {
  for (size_t at = text.find('-'); at != std::string_view::npos; at = text.find('-', at + 1)) {
    const bool begins = at == 0 || std::string_view(" [(|").find(text[at - 1]) != std::string_view::npos;
    size_t end = at;
    while (end < text.size() && text[end] == '-') ++end;
    const bool named = begins && end < text.size() && is_lower(text[end]);
    while (end < text.size() && is_name_letter(text[end])) ++end;
    if (!named) continue;
    Option option{.name = std::string(text.substr(at, end - at))};
    const bool value = end + 1 < text.size() && text[end] == ' ' && (is_letter(text[end + 1]) || text[end + 1] == '\'');
    if (value) {
      size_t last = end + 1;
      while (last < text.size() && std::string_view(" ],)").find(text[last]) == std::string_view::npos) ++last;
      option.takes_value = true;
      option.words = alternatives(std::string(text.substr(end + 1, last - end - 1)));
    }
    add(options, std::move(option));
    at = end - 1;
  }
}

/// Adds the keys of `[section.key=value ...]` and `run.device=NAME`.
void add_keys(std::string_view text, std::vector<std::string>& keys) {
  for (size_t at = text.find('='); at != std::string_view::npos; at = text.find('=', at + 1)) {
    size_t begin = at;
    while (begin > 0 && (is_lower(text[begin - 1]) || text[begin - 1] == '.' || text[begin - 1] == '_')) --begin;
    const std::string key(text.substr(begin, at - begin));
    // `--sweep section.key=A,B`: the value of an option.
    const bool of_option = begin > 1 && text[begin - 1] == ' ' && is_lower(text[begin - 2]);
    if (key.find('.') != std::string::npos && !of_option && std::ranges::find(keys, key) == keys.end())
      keys.push_back(key);
  }
}

/// Returns the part of a usage line behind the command's name; empty if the line is none.
std::string_view usage_of(std::string_view line, std::string_view command) {
  if (!line.starts_with("ashlar ")) return {};
  const std::string word = str_cat(" ", command);
  for (size_t at = line.find(word); at != std::string_view::npos; at = line.find(word, at + 1)) {
    const size_t end = at + word.size();
    // The command comes first, or `launch -np N` comes before it.
    if (at != 6 && !line.starts_with("ashlar launch ")) return {};
    if (end == line.size()) return " ";
    if (line[end] == ' ') return line.substr(end);
  }
  return {};
}

/// Cuts off the description, which two spaces separate.
std::string_view before_description(std::string_view text) { return text.substr(0, text.find("  ")); }

}  // namespace

std::vector<Syntax> syntax_of(const CommandText& command) {
  std::vector<Syntax> all(1);
  size_t current = 0;
  bool in_usage = false;
  std::istringstream lines(command.help);
  for (std::string raw; std::getline(lines, raw);) {
    std::string_view line = raw;
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    std::string_view rest = usage_of(line, command.name);
    const bool usage = !rest.empty();
    if (usage) {
      rest.remove_prefix(1);
      const std::string word(rest.substr(0, rest.find(' ')));
      current = 0;
      if (is_plain_word(word)) {
        const auto known = std::ranges::find(all, word, &Syntax::name);
        current = static_cast<size_t>(known - all.begin());
        if (known == all.end()) all.push_back({.name = word});
      }
    }
    const bool continues = in_usage && !usage && line.starts_with('[');
    in_usage = usage || continues;
    if (usage) rest = before_description(rest);
    if (continues || line.starts_with('-')) rest = continues ? line : before_description(line);
    if (rest.empty()) continue;
    Syntax& syntax = all[current];
    add_options(rest, syntax.options);
    if (in_usage) add_keys(rest, syntax.keys);
    syntax.explains_keys = syntax.explains_keys || (usage && rest.starts_with("KEY "));
  }
  return all;
}

}  // namespace ashlar::manual
