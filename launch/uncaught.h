#pragma once

#include <exception>
#include <optional>
#include <string>

namespace ashlar::launch {

/// Returns the text "[memory] ..." or "[threads] ..." for an exception that means that the system refused memory or a
/// thread. The text names the limit that the user can raise. Returns nothing for other exceptions.
std::optional<std::string> refused_by_system(const std::exception& error);

/// After this call an uncaught exception in any thread, e.g. an out-of-memory error in a library's thread, ends the
/// process as in the main thread: the process prints the error in one line and exits with the code of the Error, or
/// with 6 if the system refused memory or a thread. Any other exception aborts the process.
void report_what_nobody_catches();

}  // namespace ashlar::launch
