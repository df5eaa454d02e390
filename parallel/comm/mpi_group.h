#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/comm/progress_engine.h"
#include "parallel/comm/tuning.h"

namespace ashlar::comm {

/// Throws Error(kPeerLost) with MPI's error text unless `code` is MPI_SUCCESS. Usage: ASHLAR_MPI(MPI_Barrier(comm)).
void check_mpi(int code, const char* call);
#define ASHLAR_MPI(call) ::ashlar::comm::check_mpi(call, #call)

/// Memory for operands received from other ranks, reused by later operations. Blocks are aligned to 64 bytes.
class StagingPool {
 public:
  using Block = std::unique_ptr<char[], void (*)(char*)>;

  /// Returns a block of at least `bytes`: the smallest free block that is large enough, else a new one.
  std::pair<Block, int64_t> acquire(int64_t bytes);
  void release(Block block, int64_t bytes);

  /// True if `bytes` more bytes fit into the rank's budget, or if no staging memory is in use. Waiting for room cannot
  /// deadlock: the other ranks send their operands without staging memory, so an operation that has acquired memory
  /// always receives its operands and then releases the memory.
  bool has_room_for(int64_t bytes) const { return in_use_ == 0 || in_use_ + bytes <= kBudget; }
  int64_t most_in_use() const { return most_; }

 private:
  static constexpr int64_t kBudget = 16 << 20;
  std::vector<std::pair<Block, int64_t>> free_;
  int64_t in_use_ = 0, most_ = 0;
};

/// State shared by an MpiComm and its operations; lives until the last of them is destroyed.
struct MpiGroup {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  Tuning tuning;
  std::shared_ptr<ProgressEngine> engine;
  std::shared_ptr<StagingPool> staging;
  Traffic* traffic;                ///< the engine's counters of sent messages
  uint64_t collectives;            ///< sequence number of the next collective
  std::vector<uint64_t> sent;      ///< sequence number of the next message, by receiver
  std::vector<uint64_t> received;  ///< sequence number of the next message, by sender

  MpiGroup(MPI_Comm owned, const Tuning& how, std::shared_ptr<ProgressEngine> shared_engine,
           std::shared_ptr<StagingPool> shared_staging);
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  ~MpiGroup();

  /// Return the tags of MPI messages, which distinguish pending operations. A collective has one tag for each of its
  /// two phases (0 and 1); a send or recv is numbered among the messages from its sender to its receiver. No tag
  /// exceeds 32767, the largest tag that every MPI library must support.
  int collective_tag(uint64_t number, int phase) const { return static_cast<int>(number % 8192) * 2 + phase; }
  int message_tag(uint64_t number) const { return 16384 + static_cast<int>(number % 16384); }
};

}  // namespace ashlar::comm
