#include <ostream>

#include "core/base/error.h"
#include "launch/commands/arguments.h"
#include "launch/commands/commands.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/manual/completions.h"
#include "launch/manual/man_page.h"
#include "launch/version/version.h"

namespace ashlar::launch {

const char* const kManHelp =
    "ashlar man\n"
    "\n"
    "The manual page of this program, for man and mandoc: ashlar man | man -l -\n";

const char* const kCompletionsHelp =
    "ashlar completions bash | zsh | fish\n"
    "\n"
    "A script that completes commands, options and their values, keys of a configuration and their values, and files.\n"
    "\n"
    "bash: . <(ashlar completions bash)   in ~/.bashrc\n"
    "zsh:  . <(ashlar completions zsh)    in ~/.zshrc, after compinit\n"
    "fish: ashlar completions fish | source   in ~/.config/fish/config.fish\n"
    "\n"
    "`cmake --install` puts the scripts and the manual page where the shells and man look for them.\n";

int run_man_command(Words words, Session& session) {
  Arguments("man", words).options_only();
  session.out << manual::man_page(command_texts(), std::string(commit_date()));
  return static_cast<int>(ExitCode::kDone);
}

int run_completions_command(Words words, Session& session) {
  manual::Shell shell{};
  if (words.size() != 1 || !parse_enum(words[0], shell))
    throw input_error("completions", "expected one word of bash, zsh and fish, got ",
                      words.empty() ? "none" : printable(words[0]), "; see ashlar completions --help");
  session.out << manual::completions(shell, command_texts());
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace ashlar::launch
