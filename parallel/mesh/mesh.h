#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/base/mesh_axis.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::mesh {

/// The number of ranks along each axis; one by default. Pure data.
class MeshShape : public PerAxis {
 public:
  MeshShape(std::initializer_list<Entry> sizes = {}) : PerAxis(1, sizes) {}

  int64_t size(AxisSet axes) const;  ///< ranks of a group over these axes
  int64_t ranks() const;             ///< ranks of the mesh
};

/// A rank's coordinate along each axis; 0 by default.
class Coordinates : public PerAxis {
 public:
  Coordinates(std::initializer_list<Entry> places = {}) : PerAxis(0, places) {}
};

/// Ranks are numbered along the axes in the order of Axis, the last one fastest: axes with the most traffic are
/// adjacent.
Coordinates coordinates_of(const MeshShape& shape, int64_t rank);
/// The rank at these coordinates within its group over `axes`. With kAllAxes this is the rank in the mesh.
int64_t index_of(const MeshShape& shape, const Coordinates& at, AxisSet axes);

/// This rank's coordinates, and a communicator for each group of ranks on request. A group of one rank is a
/// communicator like any other. The communicators live as long as the mesh; `world` must outlive it.
class Mesh {
 public:
  /// Called by all ranks of `world`; Bug unless there are shape.ranks().
  Mesh(comm::Communicator& world, const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  const Coordinates& at() const { return at_; }
  int64_t size(AxisSet axes) const { return shape_.size(axes); }             ///< size of this rank's group over `axes`
  int64_t index(AxisSet axes) const { return index_of(shape_, at_, axes); }  ///< this rank's rank in it
  bool first_stage() const { return at_[Axis::kPipeline] == 0; }
  bool last_stage() const { return at_[Axis::kPipeline] == shape_[Axis::kPipeline] - 1; }

  comm::Communicator& all() { return world_; }        ///< every rank, as ranked by the launcher
  comm::ControlPlane& control() { return control_; }  ///< host values of every rank
  /// The ranks that differ from this one only along `axes`, in world order. Created at the first request, which all
  /// ranks of the mesh make together.
  comm::Communicator& group(AxisSet axes);
  /// Returns the union of the axis sets that the ranks pass, ascending, the same on every rank. It lets all ranks
  /// create groups that only some of them need. Called by all ranks.
  std::vector<AxisSet> agree_on(std::span<const AxisSet> own);

 private:
  comm::Communicator& world_;
  comm::ControlPlane control_;
  MeshShape shape_;
  Coordinates at_;
  std::map<AxisSet, std::unique_ptr<comm::Communicator>> groups_;
};

}  // namespace ashlar::mesh
