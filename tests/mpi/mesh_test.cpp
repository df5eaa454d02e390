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
        const MeshShape shape{.pipeline = pipeline, .data = data, .tensor = tensor};
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
        EXPECT_EQ(gather_values(mesh.tensor(), me), along_tensor);
        EXPECT_EQ(gather_values(mesh.data(), me), along_data);
        EXPECT_EQ(gather_values(mesh.pipeline(), me), along_pipeline);
        EXPECT_EQ(gather_values(mesh.model(), me), model);
        EXPECT_EQ(&mesh.all(), &world);
        EXPECT_EQ(mesh.tensor().rank(), mesh.at().tensor);
        EXPECT_EQ(mesh.data().rank(), mesh.at().data);
        EXPECT_EQ(mesh.pipeline().rank(), mesh.at().pipeline);
        EXPECT_EQ(mesh.sharers().size(), 1) << "none asked for";
        EXPECT_EQ(mesh.first_stage(), p == 0);
        EXPECT_EQ(mesh.last_stage(), p == pipeline - 1);
        EXPECT_EQ(mesh.tensor().name(), "tensor");
      }
    }
  }
}

TEST(MeshGroups, SharersAreConsecutiveTensorRanks) {
  comm::Communicator& world = bootstrap().world();
  const int64_t ranks = world.size();
  for (int64_t sharers = 1; sharers <= ranks; ++sharers) {
    if (ranks % sharers != 0) continue;
    mesh::Mesh mesh(world, {.pipeline = 1, .data = 1, .tensor = ranks}, sharers);
    std::vector<int64_t> want;
    for (int64_t i = 0; i < sharers; ++i) want.push_back(world.rank() / sharers * sharers + i);
    EXPECT_EQ(gather_values(mesh.sharers(), int64_t{world.rank()}), want);
  }
}

}  // namespace
}  // namespace ashlar::testing
