#pragma once

#include <exception>
#include <optional>
#include <string>

namespace ashlar::launch {

/// The text "[memory] ..." or "[threads] ..." for an exception that means that the system refused memory or a thread,
/// with the limit that the user can raise; nothing for other exceptions.
std::optional<std::string> refused_by_system(const std::exception& error);

/// After this call an uncaught exception in any thread, such as an out-of-memory error in a library's thread, ends the
/// process like one in the main thread: with its line, and with its exit code if it is an Error or a refusal by the
/// system (6).
void report_what_nobody_catches();

}  // namespace ashlar::launch
