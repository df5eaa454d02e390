#pragma once

#include <ostream>
#include <span>
#include <string>

#include "core/base/log.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// `ashlar bench comm [--device cpu|cuda] [--dtype fp32|bf16|fp64] [--largest BYTES] [--seconds S] [--deterministic]
/// [--json]`, on any number of ranks: all_reduce, reduce_scatter, all_gather and all_to_all of a whole vector of 4 KB
/// to 16 MB, and send_recv of messages of that size between pairs of ranks. Each line has four values. Time. Algorithm
/// bandwidth: size / time, in GB/s. Bus bandwidth: (the fewest bytes that each rank must send) / time; these bytes are
/// 2 (p - 1) / p of the size for all_reduce, and (p - 1) / p for reduce_scatter, all_gather and all_to_all. Share of a
/// plain copy: (time in which all ranks copy the same size at once in the same memory) / time. On cuda the buffers are
/// in device memory and NCCL moves them (`--deterministic` as in training); on cpu they are in host memory. Times are
/// the lower quartile of the slowest rank's. `--chunk-bytes`, `--in-flight` and `--direct-bytes` set other values of
/// comm::Tuning. Rank 0 prints. Returns the exit code; throws input_error for bad options.
int run_bench_comm(std::span<const std::string> words, comm::Bootstrap& bootstrap, Log& log, std::ostream& out);

}  // namespace ashlar::launch
