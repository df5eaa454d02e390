#include "launch/commands/explain.h"

#include <cstdio>

#include "core/base/error.h"
#include "launch/config/explain.h"

namespace ashlar::commands {

const char* const kExplainHelp =
    "ashlar explain KEY | SECTION | all\n"
    "ashlar explain --markdown\n"
    "\n"
    "The meaning of a configuration key, with type, default and range. A SECTION is the part of a key\n"
    "before the dot, such as rope; --markdown prints the table of all keys.\n";

int explain_command(const std::vector<std::string>& arguments) {
  if (arguments.size() != 1)
    throw input_error("explain", "expected one argument, got ", arguments.size(),
                      "; give a key such as model.d_ff, a section such as rope, all, or --markdown");
  const bool markdown = arguments[0] == "--markdown";
  const std::string text = markdown ? config::schema_markdown() : config::explain(arguments[0]);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw resource_error("explain", "cannot write ", text.size(),
                         " bytes to standard output; check the disk and the reader of the pipe");
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace ashlar::commands
