#include "tests/support/shell.h"

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/support/scratch_dir.h"

namespace ashlar::testing {

namespace {

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string shell_quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string preloading(const std::string& library) {
  return "LD_PRELOAD=" + shell_quote(library) + " ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0";
}

void write_program(const std::string& path, const std::string& body) {
  std::ofstream(path) << "#!/usr/bin/env bash\n" << body << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

ShellResult run_shell(const std::string& script) {
  const ScratchDir scratch;
  std::ofstream(scratch.file("script")) << script;
  // Scripts start programs that are told to end by SIGINT. A test that was started in the background of a script was
  // told to ignore it, which bash can't take back.
  const std::string command = "env --default-signal=INT,QUIT bash " + shell_quote(scratch.file("script")) +
                              " </dev/null >" + shell_quote(scratch.file("out")) + " 2>" +
                              shell_quote(scratch.file("err"));
  const int status = std::system(command.c_str());
  if (status == -1) throw std::runtime_error("cannot start bash");
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read_whole(scratch.file("out")),
          .err = read_whole(scratch.file("err"))};
}

}  // namespace ashlar::testing
