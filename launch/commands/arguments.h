#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/config/run_config.h"

namespace ashlar::launch {

/// The words after a subcommand: options `--name value` or `--name=value`, flags `--name`, and positional words in
/// order. Each option is read once; `finish` then refuses unread options and suggests the nearest name.
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

  /// The remaining positional words. Input error for an unknown option.
  std::vector<std::string> positionals();

  const std::string& command() const { return command_; }

 private:
  std::string command_;
  std::vector<std::string> words_;
  std::vector<std::string> known_;
};

/// Removes the words of the form section.key=value from `words` and returns them.
std::vector<std::string> take_overrides(std::vector<std::string>& words);

/// For a command that accepts run.device and no other key: removes the overrides from `words` and returns the value of
/// the last one; absent when there is none. Input error for another key or value.
std::optional<config::Device> take_device(std::string_view command, std::vector<std::string>& words);

}  // namespace ashlar::launch
