#include "parallel/mesh/mesh.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace ashlar::mesh {

namespace {

std::vector<int64_t> divisors_of(int64_t n) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return divisors;
}

bool fits(const HeadCounts& heads, int64_t tensor) {
  return heads.n_heads % tensor == 0 && (heads.n_kv_heads % tensor == 0 || tensor % heads.n_kv_heads == 0);
}

}  // namespace

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

std::vector<int64_t> possible_tensor_sizes(const HeadCounts& heads) {
  std::vector<int64_t> sizes = divisors_of(heads.n_heads);
  std::erase_if(sizes, [&](int64_t tensor) { return !fits(heads, tensor); });
  return sizes;
}

int64_t kv_sharing_ranks(int64_t tensor, int64_t n_kv_heads) {
  ASHLAR_CHECK(n_kv_heads % tensor == 0 || tensor % n_kv_heads == 0, n_kv_heads, " KV heads on ", tensor, " ranks");
  return std::max<int64_t>(1, tensor / n_kv_heads);
}

Mesh::Mesh(comm::Communicator& world, const MeshShape& shape, int64_t n_kv_heads)
    : world_(world), control_(world, "mesh control"), shape_(shape), at_(coordinates_of(shape, world.rank())) {
  ASHLAR_CHECK(shape.ranks() == world.size(), "a mesh of ", shape.ranks(), " ranks over ", world.size());
  // Ranks of one color form a group: those that differ only along the axes of the group. Keys follow the axes, pipeline
  // before data before tensor, as the order of the world does.
  const auto group = [&](int64_t color, const char* name) {
    return world.split({.color = static_cast<int>(color), .key = world.rank(), .name = name});
  };
  tensor_ = group(rank_of(shape, {at_.pipeline, at_.data, 0}), "tensor");
  data_ = group(rank_of(shape, {at_.pipeline, 0, at_.tensor}), "data");
  pipeline_ = group(rank_of(shape, {0, at_.data, at_.tensor}), "pipeline");
  model_ = group(at_.data, "model");
  const int64_t sharers = kv_sharing_ranks(shape.tensor, n_kv_heads);
  kv_sharers_ = group(rank_of(shape, {at_.pipeline, at_.data, at_.tensor / sharers * sharers}), "kv_sharers");
  ends_ = group(first_stage() || last_stage() ? rank_of(shape, {0, at_.data, at_.tensor}) : -1, "ends");
}

}  // namespace ashlar::mesh
