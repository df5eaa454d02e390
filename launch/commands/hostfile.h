#pragma once

#include <cstdint>
#include <string_view>

namespace ashlar::launch {

/// The number of ranks for the machines of an Open MPI hostfile, counted as Open MPI does: `host slots=N` counts N, a
/// host named once without a number counts `cores`, a host named n times counts n, each further mention one more.
/// `localhost` and `this_host` are one machine. `name` is the name of the file. An input error names the line if it has
/// something that Open MPI refuses or misreads: carriage returns, a byte order mark, `host:N`, unknown words, a second
/// number for a host.
int64_t hostfile_slots(std::string_view text, int64_t cores, std::string_view name = "hostfile",
                       std::string_view this_host = "localhost");

/// Parses a number of ranks or slots in `what`, e.g. `--host a:2`. Input error for anything else.
int64_t count_of(std::string_view text, std::string_view what);

}  // namespace ashlar::launch
