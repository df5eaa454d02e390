#pragma once

#include <memory>

#include "parallel/comm/device_operation.h"
#include "parallel/comm/mpi_group.h"

namespace ashlar::comm {

/// Each function makes an operation of MpiComm and assigns the group's next collective number to the operation. An
/// operation is a state machine that sends and receives MPI messages.
std::shared_ptr<Operation> mpi_all_reduce(const std::shared_ptr<MpiGroup>& group, const AllReduce& args);
std::shared_ptr<Operation> mpi_reduce_scatter(const std::shared_ptr<MpiGroup>& group, const ReduceScatter& args);
std::shared_ptr<Operation> mpi_all_gather(const std::shared_ptr<MpiGroup>& group, const AllGather& args);
std::shared_ptr<Operation> mpi_all_to_all(const std::shared_ptr<MpiGroup>& group, const AllToAll& args);
std::shared_ptr<Operation> mpi_broadcast(const std::shared_ptr<MpiGroup>& group, const Broadcast& args);

}  // namespace ashlar::comm
