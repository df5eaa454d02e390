#include "launch/commands/subcommands.h"

#include <ostream>

#include "core/base/error.h"
#include "launch/commands/session.h"
#include "launch/config/explain.h"

namespace ashlar::launch {

const char* const kExplainHelp =
    "ashlar explain KEY | SECTION | all\n"
    "ashlar explain --markdown\n"
    "\n"
    "The meaning of a configuration key, with type, default and range. A SECTION is the part of a key\n"
    "before the dot, such as rope; --markdown prints the table of all keys.\n";

int run_explain_command(Words words, Session& session) {
  if (words.size() != 1)
    throw input_error("explain", "expected one argument, got ", words.size(),
                      "; give a key (model.d_ff), a section (rope), the word all, or --markdown");
  const bool markdown = words[0] == "--markdown";
  session.out << (markdown ? config::schema_markdown() : config::explain(words[0]));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace ashlar::launch
