#pragma once

#include <cstdint>

namespace ashlar::comm {

/// Parameters by which operations are split into messages. Equal on all ranks; no effect on results. The defaults are
/// the best in `ashlar bench comm` on two cores, with two and with four ranks.
struct Tuning {
  int64_t chunk_bytes = 256 << 10;  ///< chunk size of each rank's part
  int64_t chunks_in_flight = 2;     ///< chunks in flight per operation
  int64_t direct_bytes = 48 << 10;  ///< an all_reduce with at most these received bytes sends whole operands
  int64_t small_bytes = 64 << 10;   ///< vectors up to this size use log2 p messages instead of p - 1
  int small_ranks = 5;              ///< with at least this many ranks
  int64_t least_chunk_bytes =
      4 << 10;  ///< minimum: chunks shrink with more ranks, so that staging stays at four full chunks
  int64_t max_message_bytes = 1 << 30;  ///< MPI counts in int
  uint64_t first_number = 0;            ///< first sequence number for tags; tests start near the wrap-around
};

}  // namespace ashlar::comm
