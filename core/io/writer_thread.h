#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace ashlar::io {

// Functions for writing to a descriptor whose reader may stop forever. LineWriter and OutputQueue (launch/) use them.

/// Waits until the descriptor accepts at least one byte, writes as much of `text` as it accepts in one write(), and
/// returns the number of bytes written. Returns 0 and sets errno on failure.
size_t write_some(int fd, std::string_view text);

/// Runs `work` on a new thread with this name (at most 15 characters). The thread blocks all signals. It is never
/// joined, since it may still wait for a reader when the process ends. Throws std::system_error if the thread cannot be
/// created.
void start_writer(const char* name, std::function<void()> work);

}  // namespace ashlar::io
