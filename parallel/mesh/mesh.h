#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::mesh {

/// How many ranks lie along each axis. Pure data; nothing here starts a rank.
struct MeshShape {
  int64_t pipeline = 1;
  int64_t data = 1;
  int64_t tensor = 1;

  int64_t ranks() const { return pipeline * data * tensor; }
};

struct Coordinates {
  int64_t pipeline = 0;
  int64_t data = 0;
  int64_t tensor = 0;

  bool operator==(const Coordinates&) const = default;
};

/// Neighbouring ranks lie along tensor, then data, then pipeline: what talks most is closest.
/// rank = (pipeline * shape.data + data) * shape.tensor + tensor.
Coordinates coordinates_of(const MeshShape& shape, int64_t rank);
int64_t rank_of(const MeshShape& shape, const Coordinates& at);

/// This rank's place, and a communicator for each group it belongs to. A group of one rank is a communicator like any
/// other. The communicators live as long as the mesh; `world` must outlive it.
class Mesh {
 public:
  /// Called by all ranks of `world`, of which there are shape.ranks(). `sharers` consecutive tensor ranks form a
  /// sub-group for what they hold in common; it divides shape.tensor. Bug otherwise.
  Mesh(comm::Communicator& world, const MeshShape& shape, int64_t sharers = 1);

  const MeshShape& shape() const { return shape_; }
  const Coordinates& at() const { return at_; }
  bool first_stage() const { return at_.pipeline == 0; }
  bool last_stage() const { return at_.pipeline == shape_.pipeline - 1; }

  comm::Communicator& all() { return world_; }           ///< every rank, as ranked by the launcher
  comm::ControlPlane& control() { return control_; }     ///< host values of every rank
  comm::Communicator& tensor() { return *tensor_; }      ///< one layer's slices; rank = at().tensor
  comm::Communicator& data() { return *data_; }          ///< replicas of the same slices; rank = at().data
  comm::Communicator& pipeline() { return *pipeline_; }  ///< the stages; rank = at().pipeline
  comm::Communicator& model() { return *model_; }        ///< tensor x pipeline: one whole replica
  comm::Communicator& sharers() { return *sharers_; }    ///< tensor ranks that hold some slice in common
  /// The first and the last stage of a replica's slice, which share a tied table; null on the stages between.
  comm::Communicator* ends() { return ends_.get(); }

 private:
  comm::Communicator& world_;
  comm::ControlPlane control_;
  MeshShape shape_;
  Coordinates at_;
  std::unique_ptr<comm::Communicator> tensor_, data_, pipeline_, model_, sharers_, ends_;
};

}  // namespace ashlar::mesh
