#pragma once

#include <string>

namespace ashlar::testing {

/// How a shell script ended: its exit code (128 + signal when one killed it) and what it wrote.
struct ShellResult {
  int code = 0;
  std::string out;
  std::string err;
};

/// Runs `script` with bash, standard input empty, and waits for it. Throws std::runtime_error when bash cannot start.
ShellResult run_shell(const std::string& script);

/// `text` as one word of a shell script.
std::string shell_quote(const std::string& text);

/// Variables that load `library` into programs before all others; the address sanitizer, which wants to come first, is
/// told.
std::string preloading(const std::string& library);

/// Writes a bash script that can be run as a program: the stand-in for one.
void write_program(const std::string& path, const std::string& body);

}  // namespace ashlar::testing
