#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Man page and shell completions, made from the help texts of the subcommands.
namespace ashlar::manual {

/// A row of the table of subcommands.
struct CommandText {
  std::string_view name;
  std::string_view summary;
  std::string help;  ///< what `ashlar NAME --help` prints
};

/// An option that a help text names.
struct Option {
  std::string name;                ///< with its dashes
  bool takes_value = false;        ///< `--name VALUE`
  std::vector<std::string> words;  ///< the values, where the help text lists them: `--dtype fp32|bf16`
};

/// The words that may follow `ashlar COMMAND`, or `ashlar COMMAND SUBCOMMAND`.
struct Syntax {
  std::string name;  ///< of the subcommand; "" for the command itself
  std::vector<Option> options;
  /// Keys of the configuration that are accepted as key=value: `run.device`, `moe.key` for any of moe, `section.key`
  /// for any.
  std::vector<std::string> keys;
  bool explains_keys = false;  ///< accepts KEY, the name of a key
};

/// Reads the syntax from a help text: its usage lines (`ashlar COMMAND ...`, which go on in lines that begin with a
/// bracket) and the lines that begin with an option. The first element is the command's own; the others are those of
/// its subcommands, in the order of the text.
std::vector<Syntax> syntax_of(const CommandText& command);

}  // namespace ashlar::manual
