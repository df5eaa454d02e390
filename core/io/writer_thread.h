#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace ashlar::io {

// Shared by LineWriter and OutputQueue of `launch`: writing to a descriptor whose reader may stop forever.

/// Writes as much of `text` as the descriptor accepts at once and returns its length; 0 with errno on failure. Blocks
/// until it accepts something.
size_t write_some(int fd, std::string_view text);

/// Runs `work` on a thread with that name (at most 15 characters). It blocks all signals and is never joined: it may be
/// waiting for a reader when the process ends. Throws std::system_error if the system refuses a thread.
void start_writer(const char* name, std::function<void()> work);

}  // namespace ashlar::io
