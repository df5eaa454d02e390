#pragma once

#include <memory>
#include <span>
#include <vector>

#include "parallel/comm/device_operation.h"
#include "parallel/comm/mpi_group.h"

namespace ashlar::comm {

/// The phases of a collective. Addresses are those of the whole vector, except that `own` is this rank's part.
struct CollectivePlan {
  std::vector<Range> parts;
  DType dtype = DType::kFloat32;
  ReduceOp reduce{};          ///< collect by reduction; zero: none
  int root = -1;              ///< collect from a root; negative: none
  const char* in = nullptr;   ///< source of the collect phase: this rank's operand, or the root's data
  char* own = nullptr;        ///< result of the collect phase, and source of the gather
  char* gather_to = nullptr;  ///< null: no all-gather phase
};

/// Collectives of small vectors on many ranks. A rank sends log2 p messages per round instead of p - 1, with at most
/// log2 p / 2 times the bytes of the vector in addition. Sums are in rank order, as for large vectors. Each operation
/// uses the next collective number of the group. A plan has no root.
std::shared_ptr<Operation> mpi_small_collective(const std::shared_ptr<MpiGroup>& group, CollectivePlan plan);
std::shared_ptr<Operation> mpi_small_broadcast(const std::shared_ptr<MpiGroup>& group, const Broadcast& args);
std::shared_ptr<Operation> mpi_barrier(const std::shared_ptr<MpiGroup>& group);

/// True if these algorithms are used for a vector with these parts. Equal on all ranks.
bool is_small(const MpiGroup& group, std::span<const Range> parts, int64_t element_bytes);
bool is_small(const MpiGroup& group, int64_t bytes);

}  // namespace ashlar::comm
