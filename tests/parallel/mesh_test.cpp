// The mesh as pure functions: no rank is started.
#include "parallel/mesh/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace ashlar::mesh {
namespace {

TEST(Mesh, TensorIsInnermostPipelineOutermost) {
  const MeshShape shape{{Axis::kPipeline, 2}, {Axis::kReplica, 3}, {Axis::kTensor, 4}};
  EXPECT_EQ(shape.ranks(), 24);
  EXPECT_EQ(coordinates_of(shape, 0), Coordinates{});
  EXPECT_EQ(coordinates_of(shape, 1), (Coordinates{{Axis::kTensor, 1}}));
  EXPECT_EQ(coordinates_of(shape, 4), (Coordinates{{Axis::kReplica, 1}}));
  EXPECT_EQ(coordinates_of(shape, 12), (Coordinates{{Axis::kPipeline, 1}}));
  EXPECT_EQ(coordinates_of(shape, 23), (Coordinates{{Axis::kPipeline, 1}, {Axis::kReplica, 2}, {Axis::kTensor, 3}}));
}

TEST(Mesh, RanksAndCoordinatesAreInverseOnEveryAxis) {
  // A rank's number is its digits, one an axis, the first axis the slowest.
  for (int sizes = 0; sizes < 243; ++sizes) {
    MeshShape shape;
    int rest = sizes;
    for (const auto& [axis, name] : kAxisNames) {
      shape[axis] = 1 + rest % 3;
      rest /= 3;
    }
    int64_t next = 0;
    Coordinates at;
    for (at[Axis::kPipeline] = 0; at[Axis::kPipeline] < shape[Axis::kPipeline]; ++at[Axis::kPipeline])
      for (at[Axis::kReplica] = 0; at[Axis::kReplica] < shape[Axis::kReplica]; ++at[Axis::kReplica])
        for (at[Axis::kContext] = 0; at[Axis::kContext] < shape[Axis::kContext]; ++at[Axis::kContext])
          for (at[Axis::kExpert] = 0; at[Axis::kExpert] < shape[Axis::kExpert]; ++at[Axis::kExpert])
            for (at[Axis::kTensor] = 0; at[Axis::kTensor] < shape[Axis::kTensor]; ++at[Axis::kTensor], ++next) {
              ASSERT_EQ(index_of(shape, at, kAllAxes), next);
              ASSERT_EQ(coordinates_of(shape, next), at);
              ASSERT_EQ(index_of(shape, at, kSampleAxes),
                        at[Axis::kReplica] * shape[Axis::kExpert] + at[Axis::kExpert]);
            }
    ASSERT_EQ(next, shape.ranks());
    EXPECT_THROW(coordinates_of(shape, next), Bug);
    EXPECT_THROW(index_of(shape, {{Axis::kReplica, shape[Axis::kReplica]}}, kAllAxes), Bug);
  }
}

TEST(Mesh, AGroupIsAsLargeAsItsAxes) {
  const MeshShape shape{{Axis::kPipeline, 2}, {Axis::kReplica, 3}, {Axis::kContext, 5}, {Axis::kTensor, 7}};
  EXPECT_EQ(shape.size({}), 1);
  EXPECT_EQ(shape.size(Axis::kContext), 5);
  EXPECT_EQ(shape.size({Axis::kTensor, Axis::kPipeline}), 14);
  EXPECT_EQ(shape.size(kReplicaAxes), 15);
  EXPECT_EQ(shape.size(kSampleAxes), 3);
}

TEST(AxisSet, IsASetOfNames) {
  const AxisSet both{Axis::kTensor, Axis::kReplica};
  EXPECT_EQ(text_of(both), "replica+tensor");
  EXPECT_EQ(text_of({}), "no axis");
  EXPECT_EQ(both - Axis::kTensor, AxisSet(Axis::kReplica));
  EXPECT_EQ(both & kReplicaAxes, AxisSet(Axis::kReplica));
  EXPECT_EQ(both | Axis::kTensor, both);
  EXPECT_TRUE(both.has(Axis::kTensor));
  EXPECT_FALSE(both.has(Axis::kPipeline));
}

}  // namespace
}  // namespace ashlar::mesh
