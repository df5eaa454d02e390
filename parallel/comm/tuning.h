#pragma once

#include <cstdint>

namespace ashlar::comm {

/// How operations are cut into messages. Equal on all ranks; no effect on results. The defaults are the best of
/// `ashlar bench comm` on two cores, with two and with four ranks.
struct Tuning {
  int64_t chunk_bytes = 256 << 10;      ///< of each rank's part, exchanged at once
  int64_t chunks_in_flight = 2;         ///< of one operation
  int64_t direct_bytes = 48 << 10;      ///< an all_reduce by which a rank receives no more sends operands whole
  int64_t small_bytes = 64 << 10;       ///< of a whole vector: up to that log2 p messages instead of p - 1
  int small_ranks = 5;                  ///< where there are so many
  int64_t least_chunk_bytes = 4 << 10;  ///< chunks shrink to it as ranks grow: operands of four full chunks at once
  int64_t max_message_bytes = 1 << 30;  ///< MPI counts in int
  uint64_t first_number = 0;  ///< of operations and messages, from which tags are made; tests begin near a wrap
};

}  // namespace ashlar::comm
