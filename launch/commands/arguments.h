#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/enum_names.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "launch/config/run_config.h"

namespace ashlar::launch {

/// The words after a subcommand: options `--name value` or `--name=value`, flags `--name`, and positional words in
/// order. Reading an option removes it, so a repeated one is read again. `positionals` or `options_only` comes last and
/// refuses options that were not read, with the nearest known name.
class Arguments {
 public:
  Arguments(std::string command, std::span<const std::string> words)
      : command_(std::move(command)), words_(words.begin(), words.end()) {}

  bool flag(std::string_view name);
  std::optional<std::string> option(std::string_view name);  ///< input error when the value is missing
  int64_t integer(std::string_view name, int64_t otherwise, int64_t least, int64_t most);
  /// A number of bytes: a whole number, with a unit of 1000 (KB, MB, GB, TB) or 1024 (KiB, MiB, GiB, TiB) or none.
  int64_t bytes(std::string_view name, int64_t otherwise);
  double number(std::string_view name, double otherwise, double least, double most);

  /// The value of the option's word in a table. Input error that lists the words.
  template <typename Value, size_t N>
  Value choice(std::string_view name, Value otherwise, const std::pair<std::string_view, Value> (&known)[N]) {
    const std::optional<std::string> word = option(name);
    if (!word) return otherwise;
    std::string words;
    for (const auto& [known_word, value] : known) {
      if (*word == known_word) return value;
      words += str_cat(words.empty() ? "" : ", ", known_word);
    }
    throw input_error(command_, "option ", name, " = ", printable(*word), ": expected one of ", words);
  }
  /// The same where the words are the names of an enum.
  template <NamedEnum E>
  E choice(std::string_view name, E otherwise) {
    constexpr auto kNames = names_of(E{});
    std::pair<std::string_view, E> known[kNames.size()];
    for (size_t i = 0; i < kNames.size(); ++i) known[i] = {kNames[i].name, kNames[i].value};
    return choice(name, otherwise, known);
  }

  /// The remaining positional words. Input error for an unknown option.
  std::vector<std::string> positionals();
  /// Input error if there are positional words, or an unknown option.
  void options_only();

  const std::string& command() const { return command_; }

 private:
  template <typename Number>
  Number in_range(std::string_view name, Number otherwise, Number least, Number most, const char* what);

  std::string command_;
  std::vector<std::string> words_;
  std::vector<std::string> known_;
};

/// The option --dtype of a benchmark: fp32, bf16, fp64 or all.
std::vector<DType> take_dtypes(Arguments& arguments, std::vector<DType> otherwise);

/// Removes the words of the form section.key=value from `words` and returns them.
std::vector<std::string> take_overrides(std::vector<std::string>& words);

/// For a command that accepts run.device and no other key: removes the overrides from `words` and returns the value of
/// the last one; absent when there is none. Input error for another key or value.
std::optional<config::Device> take_device(std::string_view command, std::vector<std::string>& words);

}  // namespace ashlar::launch
