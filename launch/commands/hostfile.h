#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ashlar::launch {

/// Ranks that the machines of an Open MPI hostfile take, counted as Open MPI counts them: `host slots=N` takes N, a
/// host that is named once without a number `cores`, one that is named n times n, each further mention one more.
/// `localhost` and `this_host` are one machine. Input error with the line for what Open MPI would refuse or take for
/// something else: carriage returns, a byte order mark, `host:N`, unknown words, a second number for a host. `name` is
/// the file's.
int64_t hostfile_slots(std::string_view text, int64_t cores, std::string_view name = "hostfile",
                       std::string_view this_host = "localhost");

/// A number of ranks or slots in `what`, e.g. `--host a:2`. Input error for anything else.
int64_t count_of(std::string_view text, std::string_view what);

}  // namespace ashlar::launch
