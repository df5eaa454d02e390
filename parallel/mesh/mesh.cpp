#include "parallel/mesh/mesh.h"

#include <utility>

#include "core/base/error.h"

namespace ashlar::mesh {

Coordinates coordinates_of(const MeshShape& shape, int64_t rank) {
  ASHLAR_CHECK(rank >= 0 && rank < shape.ranks(), "rank ", rank, " of ", shape.ranks());
  return {.pipeline = rank / (shape.tensor * shape.data),
          .data = rank / shape.tensor % shape.data,
          .tensor = rank % shape.tensor};
}

int64_t rank_of(const MeshShape& shape, const Coordinates& at) {
  ASHLAR_CHECK(at.pipeline >= 0 && at.pipeline < shape.pipeline && at.data >= 0 && at.data < shape.data &&
                   at.tensor >= 0 && at.tensor < shape.tensor,
               "(", at.pipeline, ", ", at.data, ", ", at.tensor, ") in a mesh of (", shape.pipeline, ", ", shape.data,
               ", ", shape.tensor, ")");
  return (at.pipeline * shape.data + at.data) * shape.tensor + at.tensor;
}

Mesh::Mesh(comm::Communicator& world, const MeshShape& shape, int64_t sharers)
    : world_(world), control_(world, "mesh control"), shape_(shape), at_(coordinates_of(shape, world.rank())) {
  ASHLAR_CHECK(shape.ranks() == world.size(), "a mesh of ", shape.ranks(), " ranks over ", world.size());
  ASHLAR_CHECK(sharers >= 1 && shape.tensor % sharers == 0, "sub-groups of ", sharers, " ranks in ", shape.tensor);
  // Ranks of one color form a group: those that differ only along the axes of the group. Keys follow the axes, pipeline
  // before data before tensor, as the order of the world does.
  const auto group = [&](int64_t color, const char* name) {
    return world.split({.color = static_cast<int>(color), .key = world.rank(), .name = name});
  };
  tensor_ = group(rank_of(shape, {at_.pipeline, at_.data, 0}), "tensor");
  data_ = group(rank_of(shape, {at_.pipeline, 0, at_.tensor}), "data");
  pipeline_ = group(rank_of(shape, {0, at_.data, at_.tensor}), "pipeline");
  model_ = group(at_.data, "model");
  sharers_ = group(rank_of(shape, {at_.pipeline, at_.data, at_.tensor / sharers * sharers}), "sharers");
  ends_ = group(first_stage() || last_stage() ? rank_of(shape, {0, at_.data, at_.tensor}) : -1, "ends");
}

}  // namespace ashlar::mesh
