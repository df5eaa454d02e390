#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace ashlar::io {

// What LineWriter and OutputQueue of `launch` share: writing to a descriptor whose reader may stop for ever.

/// Writes as much of `text` as the descriptor takes at once, and returns how much; 0 with errno when it fails. Waits
/// until it takes something.
size_t write_some(int fd, std::string_view text);

/// Runs `work` on a thread of that name (15 characters at most). It takes no signals and is never joined: it may be
/// waiting for a reader when the process ends. Throws std::system_error where the system refuses a thread.
void start_writer(const char* name, std::function<void()> work);

}  // namespace ashlar::io
