// The mesh as pure functions: no rank is started.
#include "parallel/mesh/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace ashlar::mesh {
namespace {

TEST(Mesh, TensorIsInnermostPipelineOutermost) {
  const MeshShape shape{.pipeline = 2, .data = 3, .tensor = 4};
  EXPECT_EQ(shape.ranks(), 24);
  EXPECT_EQ(coordinates_of(shape, 0), (Coordinates{0, 0, 0}));
  EXPECT_EQ(coordinates_of(shape, 1), (Coordinates{.pipeline = 0, .data = 0, .tensor = 1}));
  EXPECT_EQ(coordinates_of(shape, 4), (Coordinates{.pipeline = 0, .data = 1, .tensor = 0}));
  EXPECT_EQ(coordinates_of(shape, 12), (Coordinates{.pipeline = 1, .data = 0, .tensor = 0}));
  EXPECT_EQ(coordinates_of(shape, 23), (Coordinates{.pipeline = 1, .data = 2, .tensor = 3}));
}

TEST(Mesh, RanksAndCoordinatesAreInverse) {
  for (int64_t pipeline = 1; pipeline <= 4; ++pipeline) {
    for (int64_t data = 1; data <= 4; ++data) {
      for (int64_t tensor = 1; tensor <= 4; ++tensor) {
        const MeshShape shape{.pipeline = pipeline, .data = data, .tensor = tensor};
        int64_t next = 0;
        for (int64_t p = 0; p < pipeline; ++p) {
          for (int64_t d = 0; d < data; ++d) {
            for (int64_t t = 0; t < tensor; ++t, ++next) {
              EXPECT_EQ(rank_of(shape, {p, d, t}), next);
              EXPECT_EQ(coordinates_of(shape, next), (Coordinates{p, d, t}));
            }
          }
        }
        EXPECT_THROW(coordinates_of(shape, next), Bug);
        EXPECT_THROW(rank_of(shape, {0, data, 0}), Bug);
      }
    }
  }
}

}  // namespace
}  // namespace ashlar::mesh
