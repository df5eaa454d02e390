#pragma once

#include <string>
#include <vector>

#include "core/base/strings.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::testing {

/// Every mesh of 1, 2, 4, ... ranks that `most` ranks have room for.
inline std::vector<mesh::MeshShape> meshes(int64_t most) {
  std::vector<mesh::MeshShape> all;
  for (int64_t ranks = 1; ranks <= most; ranks *= 2) {
    for (int64_t pipeline = 1; pipeline <= ranks; pipeline *= 2) {
      for (int64_t data = 1; data <= ranks / pipeline; data *= 2)
        all.push_back({{Axis::kPipeline, pipeline}, {Axis::kReplica, data}, {Axis::kTensor, ranks / pipeline / data}});
    }
  }
  return all;
}

/// Every mesh of exactly so many ranks.
inline std::vector<mesh::MeshShape> meshes_of(int64_t ranks) {
  std::vector<mesh::MeshShape> all = meshes(ranks);
  std::erase_if(all, [&](const mesh::MeshShape& shape) { return shape.ranks() != ranks; });
  return all;
}

inline std::string name_of(const mesh::MeshShape& shape) {
  const int64_t expert = shape[Axis::kExpert];
  return str_cat("pipeline ", shape[Axis::kPipeline], " x data ", shape.size(kSampleAxes), " x tensor ",
                 shape[Axis::kTensor], expert == 1 ? "" : str_cat(", expert ", expert));
}

}  // namespace ashlar::testing
