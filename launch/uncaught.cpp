#include "launch/uncaught.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>

#include "core/base/error.h"
#include "core/base/fixed_text.h"
#include "core/device/host_limits.h"

namespace ashlar::launch {

namespace {

[[noreturn]] void leave(std::string_view text, ExitCode code) {
  char line[1024];
  const std::string_view whole = FixedText(std::span(line, sizeof(line) - 1)).add("ashlar: ").add(text).text();
  line[whole.size()] = '\0';
  pollfd reader{STDERR_FILENO, POLLOUT, 0};                             // limits the wait for a stopped reader
  if (poll(&reader, 1, 1000) == 1) std::fprintf(stderr, "%s\n", line);  // unbuffered; Error texts are already escaped
  std::_Exit(static_cast<int>(code));
}

// Does not allocate, since there may be no memory.
[[noreturn]] void leave_without_memory() {
  char text[512];
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) {
    leave("[memory] the system refused memory to a thread; close other programs, or use a machine with more memory",
          ExitCode::kResource);
  }
  const auto kilobytes = static_cast<int64_t>(limit.rlim_cur / 1024);
  leave(FixedText(text)
            .add("[memory] the system refused memory to a thread: this process is limited to ")
            .add(kilobytes / 1024)
            .add(" MiB of address space (ulimit -v ")
            .add(kilobytes)
            .add("); raise that limit")
            .text(),
        ExitCode::kResource);
}

[[noreturn]] void on_terminate() {
  if (const std::exception_ptr uncaught = std::current_exception()) {
    try {
      std::rethrow_exception(uncaught);
    } catch (const std::bad_alloc&) {
      leave_without_memory();
    } catch (const Error& error) {
      leave(error.what(), error.code());
    } catch (const std::exception& error) {
      if (const std::optional<std::string> text = refused_by_system(error)) leave(*text, ExitCode::kResource);
    } catch (...) {  // NOLINT(bugprone-empty-catch): an unknown type is a bug: the abort below dumps core
    }
  }
  std::abort();
}

}  // namespace

std::optional<std::string> refused_by_system(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return str_cat("[memory] the system refused memory: ", memory_state_text());
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  if (system == nullptr) return std::nullopt;
  if (system->code() == std::errc::not_enough_memory)
    return str_cat("[memory] the system refused memory: ", memory_state_text());
  if (system->code() == std::errc::resource_unavailable_try_again)
    return str_cat("[threads] the system refused a thread; raise the limits shown by `ulimit -u` and `ulimit -v`: ",
                   memory_state_text());
  return std::nullopt;
}

void report_what_nobody_catches() { std::set_terminate(on_terminate); }

}  // namespace ashlar::launch
