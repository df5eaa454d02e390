#pragma once

#include <cstdint>

namespace ashlar::comm {

/// Parameters by which operations are split into messages. They must be equal on all ranks, and do not affect results.
/// The defaults are the best in `ashlar bench comm` on two cores, with two and with four ranks.
struct Tuning {
  int64_t chunk_bytes = 256 << 10;  ///< size of one chunk of a rank's part
  int64_t chunks_in_flight = 2;     ///< chunks in flight per operation
  int64_t direct_bytes = 48 << 10;  ///< limit of received bytes up to which an all_reduce sends whole operands
  int64_t small_bytes = 64 << 10;   ///< vectors up to this size use log2 p messages instead of p - 1
  int small_ranks = 5;              ///< least number of ranks for which small_bytes applies
  /// Minimum of the chunk size. With up to four ranks a chunk has chunk_bytes; with more ranks it shrinks to 4 *
  /// chunk_bytes / ranks, but not below this minimum. Above the minimum, staging the operands of one chunk takes at
  /// most 4 * chunk_bytes.
  int64_t least_chunk_bytes = 4 << 10;
  int64_t max_message_bytes = 1 << 30;  ///< size limit of one MPI message, since MPI counts in int
  uint64_t first_number = 0;            ///< first sequence number for tags; tests start near the wrap-around
};

}  // namespace ashlar::comm
