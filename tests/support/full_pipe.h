#pragma once

namespace ashlar::testing {

/// Makes `fd` the writing end of a pipe that is full and that nobody reads, but that stays open: what a stopped
/// terminal or pager is to who writes to it.
void make_full_pipe(int fd);

}  // namespace ashlar::testing
