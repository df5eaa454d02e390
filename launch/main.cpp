#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "launch/commands/commands.h"
#include "launch/training/signals.h"
#include "parallel/comm/bootstrap.h"

namespace {

// One line on standard error, whatever went wrong; the code is part of the interface.
int fail(const std::string& text, ashlar::ExitCode code) {
  std::cout.flush();
  std::fprintf(stderr, "ashlar: %s\n", text.c_str());
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  const ashlar::training::SignalWatch signals;  // before any thread exists
  std::signal(SIGPIPE, SIG_IGN);                // a reader that went away is a failed write, reported where it happens
  std::signal(SIGXFSZ, SIG_IGN);
  ashlar::Log log([](std::string_view line) {
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
  });
  try {
    ashlar::comm::Bootstrap bootstrap;  // the other ranks, if there are any and a command asks for them
    const int code =
        ashlar::launch::run_command(std::vector<std::string>(argv + 1, argv + argc), signals, bootstrap, log);
    if (code == 0 && !std::cout.flush()) {  // a result that nobody got is no success
      return fail("[output] standard output cannot be written: the disk is full or its reader went away",
                  ashlar::ExitCode::kResource);
    }
    return code;
  } catch (const ashlar::Error& error) {
    return fail(error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return fail("[memory] the machine has no memory left; reduce train.micro_batch or the model",
                ashlar::ExitCode::kResource);
  } catch (const std::exception& error) {
    return fail("[bug] " + std::string(error.what()) + " (please report this as a bug)", ashlar::ExitCode::kBug);
  }
}
