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
/// order. Reading an option removes its first occurrence, so an option that may be repeated is read until it is absent.
/// Call positionals() or options_only() last: they throw an input error if an option is left that was not read; the
/// error suggests the nearest name among the options that were read.
class Arguments {
 public:
  Arguments(std::string command, std::span<const std::string> words)
      : command_(std::move(command)), words_(words.begin(), words.end()) {}

  bool flag(std::string_view name);
  std::optional<std::string> option(std::string_view name);  ///< throws an input error if the value is missing
  int64_t integer(std::string_view name, int64_t otherwise, int64_t least, int64_t most);
  /// Returns the option's number of bytes, given as a whole number with a decimal unit (KB, MB, GB, TB), a binary unit
  /// (KiB, MiB, GiB, TiB) or no unit.
  int64_t bytes(std::string_view name, int64_t otherwise);
  double number(std::string_view name, double otherwise, double least, double most);

  /// Reads the option's word and returns the value beside this word in the table `known`; `otherwise` if the option is
  /// absent. If the table lacks the word, throws an input error that lists the accepted words.
  template <typename Value, size_t N>
  Value choice(std::string_view name, Value otherwise, const std::pair<std::string_view, Value> (&known)[N]) {
    const std::optional<std::string> word = option(name);
    if (!word) return otherwise;
    for (const auto& [known_word, value] : known)
      if (*word == known_word) return value;
    throw input_error(command_, "option ", name, " = ", printable(*word), ": expected one of ",
                      comma_list(known, &std::pair<std::string_view, Value>::first));
  }
  /// Overload for an enum type: the accepted words are the names of its values.
  template <NamedEnum E>
  E choice(std::string_view name, E otherwise) {
    constexpr auto kNames = names_of(E{});
    std::pair<std::string_view, E> known[kNames.size()];
    for (size_t i = 0; i < kNames.size(); ++i) known[i] = {kNames[i].name, kNames[i].value};
    return choice(name, otherwise, known);
  }

  /// Returns the remaining positional words. Throws an input error for an unknown option.
  std::vector<std::string> positionals();
  /// Throws an input error if there are positional words or an unknown option.
  void options_only();
  /// Throws an input error unless `words` are `count` words: "expected WHAT, got N", followed by `ending`.
  void expect(const std::vector<std::string>& words, size_t count, const char* what, const char* ending) const;

  const std::string& command() const { return command_; }

 private:
  template <typename Number>
  Number in_range(std::string_view name, Number otherwise, Number least, Number most, const char* what);

  std::string command_;
  std::vector<std::string> words_;
  std::vector<std::string> known_;
};

/// Reads the option --dtype of a benchmark: fp32, bf16, fp64 or all.
std::vector<DType> take_dtypes(Arguments& arguments, std::vector<DType> otherwise);

/// Removes the words of the form section.key=value from `words` and returns them.
std::vector<std::string> take_overrides(std::vector<std::string>& words);

/// Splits an option's word "section.key=a,b" into the overrides "section.key=a" and "section.key=b". Throws an input
/// error for fewer than two values.
std::vector<std::string> alternatives_of(std::string_view command, std::string_view option, const std::string& word);

/// For a command that accepts run.device and no other key: removes the overrides from `words` and returns the value of
/// the last override; nothing if there is no override. Throws an input error for any other key, and for a value other
/// than cpu and cuda.
std::optional<config::Device> take_device(std::string_view command, std::vector<std::string>& words);

}  // namespace ashlar::launch
