#pragma once

#include "parallel/comm/self_comm.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::mesh {

/// A mesh of one rank with its communicator, for programs that run alone.
struct LoneRank {
  comm::SelfComm world{"world"};
  Mesh mesh{world, {}};
};

}  // namespace ashlar::mesh
