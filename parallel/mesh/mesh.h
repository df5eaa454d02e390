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

/// The number of ranks along each axis; one by default.
class MeshShape : public PerAxis {
 public:
  MeshShape(std::initializer_list<Entry> sizes = {}) : PerAxis(1, sizes) {}

  int64_t size(AxisSet axes) const;  ///< number of ranks of a group over `axes`
  int64_t ranks() const;             ///< number of ranks of the mesh
};

/// Returns all shapes of a mesh of so many ranks, those with few tensor ranks first, then those with few stages. Ranks
/// divide experts only if `experts`.
std::vector<MeshShape> shapes_of(int64_t ranks, bool experts);

/// A rank's coordinate along each axis; 0 by default.
class Coordinates : public PerAxis {
 public:
  Coordinates(std::initializer_list<Entry> places = {}) : PerAxis(0, places) {}
};

/// Returns the coordinates of a rank. Ranks are numbered in row-major order of the axes of enum Axis: the last axis
/// (tensor) varies fastest, so that the ranks with the most traffic between them are adjacent.
Coordinates coordinates_of(const MeshShape& shape, int64_t rank);
/// Returns the index of the rank at these coordinates within its group over `axes`. With kAllAxes the index is the
/// rank's number in the mesh.
int64_t index_of(const MeshShape& shape, const Coordinates& at, AxisSet axes);

/// This rank's coordinates, and communicators for its groups of ranks, made on request. A group of a single rank has a
/// communicator too. The communicators live as long as the mesh; `world` must outlive the mesh.
class Mesh {
 public:
  /// Called by all ranks of `world`. Throws Bug unless `world` has shape.ranks() ranks.
  Mesh(comm::Communicator& world, const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  const Coordinates& at() const { return at_; }
  int64_t size(AxisSet axes) const { return shape_.size(axes); }             ///< size of this rank's group over `axes`
  int64_t index(AxisSet axes) const { return index_of(shape_, at_, axes); }  ///< this rank's index in its group
  bool first_stage() const { return at_[Axis::kPipeline] == 0; }
  bool last_stage() const { return at_[Axis::kPipeline] == shape_[Axis::kPipeline] - 1; }

  comm::Communicator& all() { return world_; }        ///< communicator of all ranks, in the launcher's order
  comm::ControlPlane& control() { return control_; }  ///< control plane of all ranks
  /// Returns the communicator of the ranks that differ from this rank only along `axes`, in world order. It is created
  /// at the first request, which all ranks of the mesh make together.
  comm::Communicator& group(AxisSet axes);
  /// Returns the union of the lists `own` of all ranks, in ascending order. Since all ranks must create a group
  /// together, ranks that need different groups first call agree_on, and then all create every group of the union.
  /// Called by all ranks.
  std::vector<AxisSet> agree_on(std::span<const AxisSet> own);

 private:
  comm::Communicator& world_;
  comm::ControlPlane control_;
  MeshShape shape_;
  Coordinates at_;
  std::map<AxisSet, std::unique_ptr<comm::Communicator>> groups_;
};

}  // namespace ashlar::mesh
