#pragma once

#include <ostream>
#include <span>
#include <string>

#include "core/base/log.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// `ashlar bench comm [--device cpu|cuda] [--dtype fp32|bf16|fp64] [--largest BYTES] [--seconds S] [--deterministic]
/// [--json]`, on any number of ranks: all_reduce, reduce_scatter, all_gather and all_to_all of a whole vector of 4 KB
/// to 16 MB, and send_recv of messages of that size between pairs. Each line has: time; algorithm bandwidth in GB/s,
/// the size / time; bus bandwidth, the bytes that each rank must at least send (or receive) / time (2 (p - 1) / p of
/// the size for an all_reduce, (p - 1) / p for reduce_scatter, all_gather and all_to_all); and the share of a plain
/// copy, the time in which all ranks copy the same size in the same memory at once / time. Buffers are in device
/// memory: over NCCL on cuda (`--deterministic` as in training), in host memory on cpu. Times are the lower quartile of
/// the slowest rank's. `--chunk-bytes`, `--in-flight` and `--direct-bytes` set other values of comm::Tuning. Rank 0
/// prints. Returns the exit code; throws input_error for bad options.
int run_bench_comm(std::span<const std::string> words, comm::Bootstrap& bootstrap, Log& log, std::ostream& out);

}  // namespace ashlar::launch
