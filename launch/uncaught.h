#pragma once

#include <exception>
#include <optional>
#include <string>

namespace ashlar::launch {

/// "[memory] ..." or "[threads] ..." of an exception that says that the system refused memory or a thread, with the
/// limit that the user can raise; nothing of any other.
std::optional<std::string> refused_by_system(const std::exception& error);

/// From now on an exception that no thread catches, such as one of memory in a thread of a library, ends the process as
/// one of the main thread does: with its line, and with its exit code where it is an Error or the system's refusal (6).
void report_what_nobody_catches();

}  // namespace ashlar::launch
