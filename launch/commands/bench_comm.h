#pragma once

#include <ostream>
#include <span>
#include <string>

#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// `ashlar bench comm [--dtype fp32|bf16|fp64] [--largest BYTES] [--seconds S] [--json]`, on any number of ranks:
/// all_reduce, reduce_scatter, all_gather of a whole vector of 4 KB to 16 MB, and send_recv of messages of that size
/// between pairs. Each line: time, the size divided by it in GB/s, and that as a ratio to a memcpy of the same size,
/// done by all ranks at once in the same run. Times are the lower quartile of the slowest rank's. `--chunk-bytes`,
/// `--in-flight` and `--direct-bytes` try other values of comm::Tuning. Rank 0 prints. Returns the exit code; throws
/// input_error for bad options.
int run_bench_comm(std::span<const std::string> words, comm::Bootstrap& bootstrap, std::ostream& out);

}  // namespace ashlar::launch
