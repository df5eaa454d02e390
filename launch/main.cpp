#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/printable.h"
#include "launch/commands/commands.h"
#include "launch/watch/signals.h"
#include "launch/world.h"
#include "parallel/comm/bootstrap.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace {

using ashlar::ExitCode;

int print_error(const std::string& text, ExitCode code) {
  std::cout.flush();
  std::fprintf(stderr, "ashlar: %s\n", text.c_str());
  return static_cast<int>(code);
}

/// What this rank says of an error that it met by itself. Others wait for it in vain, so that its process ends without
/// goodbye and the launcher ends them.
int fail(const std::string& text, ExitCode code, ashlar::comm::Bootstrap& bootstrap) {
  const ashlar::comm::Communicator* ranks = bootstrap.started();
  if (ranks == nullptr || ranks->size() == 1) {
    // Ranks that have not met yet have all looked at the same command line.
    return ashlar::launch::world_from_environment().rank == 0 ? print_error(text, code) : static_cast<int>(code);
  }
  print_error(
      ashlar::str_cat("rank ", ranks->rank(), " of ", ranks->size(), " on ", ashlar::comm::Bootstrap::host_name(),
                      ", after ", ranks->engine()->last_operation(), ": ", text),
      code);
  std::_Exit(static_cast<int>(code));
}

int run(const std::vector<std::string>& words, ashlar::watch::SignalWatch& signals, ashlar::comm::Bootstrap& bootstrap,
        ashlar::Log& log, const bool& lines_lost) {
  try {
    const int code = ashlar::launch::run_command(words, signals, bootstrap, log);
    const bool lost = !std::cout.flush() || lines_lost;
    // A result that nobody got is no success.
    if (code == 0 && lost && ashlar::launch::prints_its_result(words)) {
      return fail("[output] standard output cannot be written: the disk is full or its reader went away",
                  ExitCode::kResource, bootstrap);
    }
    return code;
  } catch (const ashlar::comm::AllRanksError& error) {
    return bootstrap.started()->rank() == 0 ? print_error(error.what(), error.code()) : static_cast<int>(error.code());
  } catch (const ashlar::Error& error) {
    return fail(error.what(), error.code(), bootstrap);
  } catch (const std::bad_alloc&) {
    return fail("[memory] the machine has no memory left; close other programs, or take a machine with more",
                ExitCode::kResource, bootstrap);
  } catch (const std::exception& error) {
    const std::string text = ashlar::on_one_line(error.what());
    return fail((text.starts_with("[") ? "" : "[bug] ") + text + " (please report this as a bug)", ExitCode::kBug,
                bootstrap);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ashlar::watch::SignalWatch signals;  // before any thread exists
  std::signal(SIGPIPE, SIG_IGN);       // a reader that went away is a failed write, reported where it happens
  std::signal(SIGXFSZ, SIG_IGN);
  // Rank 0 speaks for all; what another rank warns of is its own.
  const int64_t rank = ashlar::launch::world_from_environment().rank;
  bool lines_lost = false;
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool result = ashlar::launch::prints_its_result(words);
  ashlar::Log log([rank, result, &lines_lost](std::string_view line) {
    if (rank != 0 && !line.starts_with("warning: ")) return;
    const std::string text = ashlar::str_cat(rank == 0 ? "" : ashlar::str_cat("rank ", rank, ": "), line, "\n");
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
    // No reason to lose a run: once, where it may be seen. What only prints ends with an error instead.
    if (!lines_lost && !result)
      std::fprintf(stderr, "ashlar: warning: standard output cannot be written (%s); its lines are lost\n",
                   std::strerror(errno));
    lines_lost = true;
  });
  ashlar::comm::Bootstrap bootstrap;  // the other ranks, if there are any and a command asks for them
  const int code = run(words, signals, bootstrap, log, lines_lost);
  signals.finish(static_cast<ExitCode>(code));  // the launcher ends who leaves later than others, which is no news
  return code;
}
