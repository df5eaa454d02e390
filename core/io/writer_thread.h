#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace ashlar::io {

// Functions for writing to a descriptor whose reader may stop forever. Used by LineWriter and by OutputQueue of
// `launch`.

/// Writes as much of `text` as the descriptor accepts at once and returns its length; 0 with errno on failure. Blocks
/// until it accepts something.
size_t write_some(int fd, std::string_view text);

/// Runs `work` on a thread with that name (at most 15 characters). The thread blocks all signals. It is never joined,
/// since it may be waiting for a reader when the process ends. Throws std::system_error if the system refuses a thread.
void start_writer(const char* name, std::function<void()> work);

}  // namespace ashlar::io
