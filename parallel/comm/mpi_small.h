#pragma once

#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi_group.h"

namespace ashlar::comm {

/// Collectives of small vectors on many ranks: log2 p messages per rank and round instead of p - 1, and at most log2 p
/// / 2 times the vector's bytes more. The same rank-order sums as for large vectors. Each uses the next collective
/// number of the group.
std::shared_ptr<Operation> mpi_small_all_reduce(const std::shared_ptr<MpiGroup>& group, const AllReduce& args);
std::shared_ptr<Operation> mpi_small_reduce_scatter(const std::shared_ptr<MpiGroup>& group, const ReduceScatter& args);
std::shared_ptr<Operation> mpi_small_all_gather(const std::shared_ptr<MpiGroup>& group, const AllGather& args);
std::shared_ptr<Operation> mpi_small_broadcast(const std::shared_ptr<MpiGroup>& group, const Broadcast& args);
std::shared_ptr<Operation> mpi_barrier(const std::shared_ptr<MpiGroup>& group);

/// True if a vector with these parts uses them. Equal on all ranks.
bool is_small(const MpiGroup& group, std::span<const Range> parts, int64_t element_bytes);
bool is_small(const MpiGroup& group, int64_t bytes);

}  // namespace ashlar::comm
