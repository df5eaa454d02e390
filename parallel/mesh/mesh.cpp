#include "parallel/mesh/mesh.h"

#include <algorithm>

#include "core/base/error.h"

namespace ashlar::mesh {

namespace {

std::string text_of(const PerAxis& numbers) {
  std::string text;
  for (const auto& [axis, name] : kAxisNames) text += str_cat(text.empty() ? "" : " x ", name, " ", numbers[axis]);
  return text;
}

/// Names a group by its axes that have more than one rank, or by its first axis if it has a single rank.
std::string name_of_group(const MeshShape& shape, AxisSet axes) {
  AxisSet first, extended;
  for (const auto& [axis, name] : kAxisNames) {
    if (!axes.has(axis)) continue;
    if (first.empty()) first = axis;
    if (shape[axis] > 1) extended = extended | axis;
  }
  return ashlar::text_of(extended.empty() ? first : extended);
}

}  // namespace

int64_t MeshShape::size(AxisSet axes) const {
  int64_t product = 1;
  for (const auto& [axis, name] : kAxisNames)
    if (axes.has(axis)) product *= (*this)[axis];
  return product;
}

int64_t MeshShape::ranks() const { return size(kAllAxes); }

std::vector<MeshShape> shapes_of(int64_t ranks, bool experts) {
  const auto divides = [](int64_t part, int64_t whole) { return whole % part == 0; };
  std::vector<MeshShape> shapes;
  for (int64_t tensor = 1; tensor <= ranks; ++tensor) {
    if (!divides(tensor, ranks)) continue;
    for (int64_t pipeline = 1; pipeline <= ranks / tensor; ++pipeline) {
      if (!divides(pipeline, ranks / tensor)) continue;
      const int64_t data = ranks / tensor / pipeline;
      for (int64_t expert = 1; expert <= (experts ? data : 1); ++expert) {
        if (!divides(expert, data)) continue;
        shapes.push_back({{Axis::kPipeline, pipeline},
                          {Axis::kReplica, data / expert},
                          {Axis::kExpert, expert},
                          {Axis::kTensor, tensor}});
      }
    }
  }
  return shapes;
}

Coordinates coordinates_of(const MeshShape& shape, int64_t rank) {
  ASHLAR_CHECK(rank >= 0 && rank < shape.ranks(), "rank ", rank, " is not in the mesh of ", shape.ranks());
  Coordinates at;
  int64_t rest = rank;
  for (size_t i = kNumAxes; i > 0; --i) {
    const Axis axis = kAxisNames[i - 1].value;
    at[axis] = rest % shape[axis];
    rest /= shape[axis];
  }
  return at;
}

int64_t index_of(const MeshShape& shape, const Coordinates& at, AxisSet axes) {
  int64_t index = 0;
  for (const auto& [axis, name] : kAxisNames) {
    ASHLAR_CHECK(at[axis] >= 0 && at[axis] < shape[axis], "coordinates ", text_of(at), " are outside the mesh of ",
                 text_of(shape));
    if (axes.has(axis)) index = index * shape[axis] + at[axis];
  }
  return index;
}

Mesh::Mesh(comm::Communicator& world, const MeshShape& shape)
    : world_(world), control_(world, "mesh control"), shape_(shape), at_(coordinates_of(shape, world.rank())) {
  ASHLAR_CHECK(shape.ranks() == world.size(), "the mesh has ", shape.ranks(), " ranks, but the world has ",
               world.size());
}

comm::Communicator& Mesh::group(AxisSet axes) {
  const auto [at, is_new] = groups_.try_emplace(axes);
  if (is_new) {
    // Groups of the same ranks (over "expert" and over "replica+expert" with one replica) have different names.
    const std::string name = name_of_group(shape_, axes);
    const auto same = std::ranges::count_if(
        groups_, [&](const auto& group) { return group.first != axes && name_of_group(shape_, group.first) == name; });
    // Ranks of one color have the same coordinates along all other axes.
    at->second = world_.split({.color = static_cast<int>(index(kAllAxes - axes)),
                               .key = world_.rank(),
                               .name = same == 0 ? name : str_cat(name, " ", same + 1)});
  }
  return *at->second;
}

std::vector<AxisSet> Mesh::agree_on(std::span<const AxisSet> own) {
  std::array<int64_t, size_t{1} << kNumAxes> named{};
  for (const AxisSet axes : own) named[axes.bits()] = 1;
  control_.reduce({.label = "agree_on", .int_maxima = named}).wait();
  std::vector<AxisSet> all;
  for (uint32_t bits = 0; bits < named.size(); ++bits)
    if (named[bits] != 0) all.emplace_back(bits);
  return all;
}

}  // namespace ashlar::mesh
