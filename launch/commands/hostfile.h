#pragma once

#include <cstdint>
#include <string_view>

namespace ashlar::launch {

/// Returns the total number of slots of the machines in an Open MPI hostfile, counted as Open MPI counts them: `host
/// slots=N` counts N; a host named once without slots counts `cores`; a host named n times without slots counts n; each
/// further line for a host with slots adds one. `localhost` and `this_host` are one machine. `name` is the name of the
/// file. If a line has something that Open MPI refuses or misreads (carriage returns, a byte order mark, `host:N`,
/// unknown words, a second number for a host), throws an input error that names the line.
int64_t hostfile_slots(std::string_view text, int64_t cores, std::string_view name = "hostfile",
                       std::string_view this_host = "localhost");

/// Parses `text` as a number of ranks or slots: a whole number from 0 to 2^20. For any other text, throws an input
/// error whose text begins with `what`, e.g. `--host a:2`.
int64_t count_of(std::string_view text, std::string_view what);

}  // namespace ashlar::launch
