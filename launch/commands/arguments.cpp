#include "launch/commands/arguments.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "core/base/nearest.h"

namespace ashlar::launch {

bool Arguments::flag(std::string_view name) {
  known_.emplace_back(name);
  const auto at = std::ranges::find(words_, name);
  if (at == words_.end()) return false;
  words_.erase(at);
  return true;
}

std::optional<std::string> Arguments::option(std::string_view name) {
  known_.emplace_back(name);
  const std::string assigned = str_cat(name, "=");
  for (auto at = words_.begin(); at != words_.end(); ++at) {
    if (at->compare(0, assigned.size(), assigned) == 0) {
      std::string value = at->substr(assigned.size());
      words_.erase(at);
      return value;
    }
    if (*at == name) {
      if (at + 1 == words_.end())
        throw input_error(command_, "option ", name, " needs a value; see ashlar ", command_, " --help");
      std::string value = *(at + 1);
      words_.erase(at, at + 2);
      return value;
    }
  }
  return std::nullopt;
}

template <typename Number>
Number Arguments::in_range(std::string_view name, Number otherwise, Number least, Number most, const char* what) {
  const auto text = option(name);
  if (!text) return otherwise;
  const std::optional<Number> value = parse_number<Number>(*text);
  if (value && *value >= least && *value <= most) return *value;
  throw input_error(command_, "option ", name, " = ", *text, ": expected a ", what, " from ", least, " to ", most);
}

int64_t Arguments::integer(std::string_view name, int64_t otherwise, int64_t least, int64_t most) {
  return in_range(name, otherwise, least, most, "whole number");
}

double Arguments::number(std::string_view name, double otherwise, double least, double most) {
  return in_range(name, otherwise, least, most, "number");
}

int64_t Arguments::bytes(std::string_view name, int64_t otherwise) {
  const auto text = option(name);
  if (!text) return otherwise;
  int64_t value = 0, unit = 0;
  const char* const last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data(), last, value);
  const std::string_view suffix(end, static_cast<size_t>(last - end));
  if (suffix.empty()) unit = 1;
  int64_t thousands = 1, binary = 1;
  for (const char letter : {'K', 'M', 'G', 'T'}) {
    thousands *= 1000;
    binary *= 1024;
    if (suffix == std::string{letter, 'B'}) unit = thousands;
    if (suffix == std::string{letter, 'i', 'B'}) unit = binary;
  }
  if (error != std::errc() || unit == 0 || value < 0 || value > INT64_MAX / unit) {
    throw input_error(command_, "option ", name, " = ", *text,
                      ": expected a whole number of bytes below 2^63, with or without a unit, such as 500MB or 2GiB");
  }
  return value * unit;
}

std::vector<std::string> Arguments::positionals() {
  for (const std::string& word : words_) {
    if (word.size() < 2 || word[0] != '-' || (word[1] >= '0' && word[1] <= '9')) continue;
    const std::string name = word.substr(0, word.find('='));
    if (std::ranges::find(known_, name) != known_.end())
      throw input_error(command_, "option ", name, " is given twice; give it once");
    const std::string nearest = nearest_word(name, known_);
    throw input_error(command_, "unknown option ", printable(name),
                      nearest.empty() ? "; " : str_cat("; did you mean ", nearest, "? "), "ashlar ", command_,
                      " --help lists all options");
  }
  return words_;
}

void Arguments::options_only() {
  if (const auto rest = positionals(); !rest.empty())
    throw input_error(command_, "expected options only, got ", printable(rest.front()), "; remove it");
}

void Arguments::expect(const std::vector<std::string>& words, size_t count, const char* what,
                       const char* ending) const {
  if (words.size() != count) throw input_error(command_, "expected ", what, ", got ", words.size(), ending);
}

std::vector<DType> take_dtypes(Arguments& arguments, std::vector<DType> otherwise) {
  using enum DType;
  const std::pair<std::string_view, std::vector<DType>> known[] = {
      {"fp32", {kFloat32}}, {"bf16", {kBFloat16}}, {"fp64", {kFloat64}}, {"all", {kFloat32, kBFloat16, kFloat64}}};
  return arguments.choice("--dtype", std::move(otherwise), known);
}

std::vector<std::string> take_overrides(std::vector<std::string>& words) {
  std::vector<std::string> overrides, rest;
  for (const std::string& word : words) {
    const size_t equal = word.find('=');
    // Also matches a key without its section: the error for the unknown override then suggests the full name.
    const bool override_form = equal != std::string::npos && equal > 0 && word.find('/') > equal &&
                               (word.find('.') < equal || !std::filesystem::exists(word));
    (override_form ? overrides : rest).push_back(word);
  }
  words = rest;
  return overrides;
}

std::vector<std::string> alternatives_of(std::string_view command, std::string_view option, const std::string& word) {
  const size_t equals = word.find('=');
  std::vector<std::string> all;
  std::istringstream values(equals == std::string::npos ? "" : word.substr(equals + 1));
  for (std::string value; std::getline(values, value, ',');) all.push_back(word.substr(0, equals + 1) + value);
  if (all.size() < 2)
    throw input_error(command, option, " ", printable(word),
                      ": expected section.key=VALUE,VALUE,... with at least two values");
  return all;
}

std::optional<config::Device> take_device(std::string_view command, std::vector<std::string>& words) {
  constexpr std::string_view kKey = "run.device=";
  std::optional<config::Device> device;
  for (const std::string& word : take_overrides(words)) {
    if (!word.starts_with(kKey))
      throw input_error(command, printable(word), ": expected no key other than run.device; remove this argument");
    if (!parse_enum(word.substr(kKey.size()), device.emplace()))
      throw input_error(command, printable(word), ": expected run.device=cpu or run.device=cuda");
  }
  return device;
}

}  // namespace ashlar::launch
