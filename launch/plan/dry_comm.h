#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::plan {

/// A rank of a mesh whose other ranks do not exist, for dry runs: this rank then allocates what it would among them.
/// Operations are complete at once and move nothing, except that an all_gather of integers, from which the host takes
/// sizes, gives every rank's part the values of this rank. Control planes have this rank alone.
class DryComm final : public comm::Communicator {
 public:
  /// The world of a mesh, for the rank at these coordinates.
  DryComm(const mesh::MeshShape& shape, const mesh::Coordinates& at);

 private:
  DryComm(const DryComm& world, AxisSet axes, std::string name);
  OperationPtr make(const comm::DeviceOperation& args, Stream& stream) override;
  /// Finds out by Split::name over which axes mesh::Mesh makes the group.
  std::unique_ptr<Communicator> make_split(const comm::Split& args) override;

  const mesh::MeshShape shape_;
  const mesh::Coordinates at_;
};

}  // namespace ashlar::plan
