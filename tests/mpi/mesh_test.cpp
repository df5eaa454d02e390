// The mesh's communicators join the ranks that its coordinates say.
#include "parallel/mesh/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/comm/host.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

/// The values of a group's ranks.
std::vector<int64_t> gather_values(comm::Communicator& group, int64_t value) {
  std::vector<int64_t> values(static_cast<size_t>(group.size()));
  const MutView one{&value, DType::kInt32, 1, 2, 2};
  const MutView all{values.data(), DType::kInt32, 1, 2 * group.size(), 2 * group.size()};
  SynchronousStream stream;
  group.all_gather({.in = one, .out = all}, stream).wait();
  return values;
}
using mesh::MeshShape;

TEST(MeshGroups, HoldTheRanksThatDifferOnlyAlongTheirAxes) {
  comm::Communicator& world = bootstrap().world();
  const int64_t ranks = world.size();
  for (int64_t pipeline = 1; pipeline <= ranks; ++pipeline) {
    for (int64_t data = 1; data <= ranks; ++data) {
      for (int64_t tensor = 1; tensor <= ranks; ++tensor) {
        if (pipeline * data * tensor != ranks) continue;
        const MeshShape shape{{Axis::kPipeline, pipeline}, {Axis::kReplica, data}, {Axis::kTensor, tensor}};
        SCOPED_TRACE(str_cat(pipeline, " x ", data, " x ", tensor));
        mesh::Mesh mesh(world, shape);
        const int64_t me = world.rank();
        // From the definition: tensor ranks are neighbours, data ranks tensor apart, stages tensor x data apart.
        std::vector<int64_t> along_tensor, along_data, along_pipeline, model;
        const int64_t t = me % tensor, d = me / tensor % data, p = me / tensor / data;
        for (int64_t i = 0; i < tensor; ++i) along_tensor.push_back(me - t + i);
        for (int64_t i = 0; i < data; ++i) along_data.push_back(me + (i - d) * tensor);
        for (int64_t i = 0; i < pipeline; ++i) along_pipeline.push_back(me + (i - p) * tensor * data);
        for (int64_t i = 0; i < pipeline; ++i) {
          for (int64_t k = 0; k < tensor; ++k) model.push_back((i * data + d) * tensor + k);
        }
        EXPECT_EQ(gather_values(mesh.group(Axis::kTensor), me), along_tensor);
        EXPECT_EQ(gather_values(mesh.group(kReplicaAxes), me), along_data);
        EXPECT_EQ(gather_values(mesh.group(Axis::kPipeline), me), along_pipeline);
        EXPECT_EQ(gather_values(mesh.group({Axis::kPipeline, Axis::kTensor}), me), model);
        EXPECT_EQ(&mesh.all(), &world);
        EXPECT_EQ(mesh.group(Axis::kTensor).rank(), mesh.at()[Axis::kTensor]);
        EXPECT_EQ(mesh.group(kReplicaAxes).rank(), mesh.index(kSampleAxes));
        EXPECT_EQ(mesh.group(Axis::kPipeline).rank(), mesh.at()[Axis::kPipeline]);
        EXPECT_EQ(mesh.first_stage(), p == 0);
        EXPECT_EQ(mesh.last_stage(), p == pipeline - 1);
        EXPECT_EQ(mesh.group(Axis::kTensor).name(), "tensor");
      }
    }
  }
}

TEST(MeshGroups, AreMadeOfAnySetOfAxes) {
  comm::Communicator& world = bootstrap().world();
  const int64_t ranks = world.size();
  if (ranks % 4 != 0) GTEST_SKIP() << "4 or 8 ranks are needed";
  // replica, context and expert beside each other; the group over two of them leaves the third out.
  const MeshShape shape{{Axis::kReplica, 2}, {Axis::kContext, ranks / 4}, {Axis::kExpert, 2}};
  mesh::Mesh mesh(world, shape);
  std::vector<int64_t> along_two, along_all;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const mesh::Coordinates at = mesh::coordinates_of(shape, rank);
    along_all.push_back(rank);
    if (at[Axis::kContext] == mesh.at()[Axis::kContext]) along_two.push_back(rank);
  }
  EXPECT_EQ(gather_values(mesh.group(kSampleAxes), world.rank()), along_two);
  EXPECT_EQ(gather_values(mesh.group(kReplicaAxes), world.rank()), along_all);
  EXPECT_EQ(mesh.group(kSampleAxes).name(), "replica+expert");
  const bool same = shape[Axis::kContext] == 1;
  EXPECT_EQ(mesh.group(kReplicaAxes).name(), same ? "replica+expert 2" : "replica+context+expert");
  EXPECT_EQ(mesh.group(kSampleAxes).rank(), mesh.index(kSampleAxes));
  EXPECT_EQ(&mesh.group(kSampleAxes), &mesh.group(kSampleAxes)) << "made once";
  // Some ranks know of a group, all make it.
  const AxisSet own[] = {world.rank() == 1 ? AxisSet(Axis::kContext) : AxisSet(Axis::kExpert)};
  EXPECT_THAT(mesh.agree_on(own), ::testing::ElementsAre(AxisSet(Axis::kContext), AxisSet(Axis::kExpert)));
}

}  // namespace
}  // namespace ashlar::testing
