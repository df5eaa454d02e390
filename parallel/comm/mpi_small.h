#pragma once

#include <memory>
#include <span>
#include <vector>

#include "parallel/comm/device_operation.h"
#include "parallel/comm/mpi_group.h"

namespace ashlar::comm {

/// Describes a collective with up to two phases, collect and all-gather. `in` and `gather_to` point to whole vectors,
/// `own` to this rank's part.
struct CollectivePlan {
  std::vector<Range> parts;
  DType dtype = DType::kFloat32;
  ReduceOp reduce{};          ///< reduction in the collect phase; zero: none
  int root = -1;              ///< root that sends in the collect phase; negative: none
  const char* in = nullptr;   ///< source of the collect phase: this rank's operand, or the root's data
  char* own = nullptr;        ///< result of the collect phase, and source of the all-gather
  char* gather_to = nullptr;  ///< output of the all-gather; null: no all-gather phase
};

/// Collectives of small vectors on many ranks. With p ranks, a rank sends log2 p messages per phase instead of p - 1.
/// In the collect phase a rank sends up to log2 p / 2 times the bytes of the vector. Sums are in rank order, as for
/// large vectors. Each function assigns the group's next collective number to the operation. `plan` must have no root.
std::shared_ptr<Operation> mpi_small_collective(const std::shared_ptr<MpiGroup>& group, CollectivePlan plan);
std::shared_ptr<Operation> mpi_small_broadcast(const std::shared_ptr<MpiGroup>& group, const Broadcast& args);
std::shared_ptr<Operation> mpi_barrier(const std::shared_ptr<MpiGroup>& group);

/// True if the collectives of small vectors (mpi_small_*) are used for a vector with these parts. The result is equal
/// on all ranks.
bool is_small(const MpiGroup& group, std::span<const Range> parts, int64_t element_bytes);
bool is_small(const MpiGroup& group, int64_t bytes);

}  // namespace ashlar::comm
