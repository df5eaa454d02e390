// Training over NCCL: every mesh of these ranks computes, within the bounds of fp32 and fp64, what one rank does. The
// library is the stand-in, which answers late, adds in another order than ranks' and refuses what NCCL's documents do;
// the streams are asynchronous, and a missing event edge to or from a communicator's stream is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/base/strings.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/meshes.h"
#include "tests/layouts/one_rank.h"
#include "tests/stand_ins/over_nccl.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

TEST(Nccl, EveryMeshHasTheGradientsOfOneRank) {
  comm::Communicator& world = bootstrap().world();
  if (world.size() == 1) GTEST_SKIP() << "one rank needs no NCCL";
  if (stand_in_nccl().empty()) GTEST_SKIP() << "no nccl.h to build the stand-in against";
  if (world.size() > 4 && !long_form()) GTEST_SKIP() << "on more than four ranks in the long form";
  uint64_t turn = 0;
  for (const mesh::MeshShape& shape : meshes(world.size())) {
    if (shape.ranks() != world.size()) continue;
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && shape[Axis::kTensor] == 1) continue;
      const size_t models = long_form() ? std::size(kAxes) : 1;  // another one on each mesh
      for (size_t i = 0; i < models; ++i, ++turn) {
        const Axes& axes = kAxes[turn % std::size(kAxes)];
        LayoutCase c{.config = config_of(axes),
                     .recompute = axes.recompute,
                     .documents = axes.documents,
                     .dtype = turn % 2 == 0 ? DType::kFloat64 : DType::kFloat32,
                     .mesh = shape,
                     .sequence_parallel = sequence_parallel,
                     .micro_batches = std::max<int64_t>(2, shape[Axis::kPipeline]),
                     .further_steps = 2,
                     .seed = 7 + turn,
                     .device = "nccl"};
        c.config.n_layers = std::max(c.config.n_layers, shape[Axis::kPipeline]);
        SCOPED_TRACE(str_cat(axes.name, " ", name_of(c.dtype), " on ", name_of(shape),
                             sequence_parallel ? ", sequence parallel" : ""));
        expect_numbers_of_one_rank(world, c);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// Rows of experts move in numbers that the host reads from the device.
TEST(Nccl, ExpertsOverRanksHaveTheGradientsOfOneRank) {
  comm::Communicator& world = bootstrap().world();
  const int64_t ranks = world.size();
  if (ranks == 1 || ranks > 4) GTEST_SKIP() << "2 or 4 ranks";
  if (stand_in_nccl().empty()) GTEST_SKIP() << "no nccl.h to build the stand-in against";
  const Axes* const axes = std::ranges::find_if(
      kAxes, [&](const Axes& a) { return std::string_view(a.name) == (ranks == 2 ? "Experts" : "ExpertsBySigmoid"); });
  expect_numbers_of_one_rank(world, {.config = config_of(*axes),
                                     .recompute = axes->recompute,
                                     .dtype = ranks == 2 ? DType::kFloat64 : DType::kFloat32,
                                     .mesh = {{Axis::kExpert, 2}, {Axis::kTensor, ranks / 2}},
                                     .sequence_parallel = ranks > 2,
                                     .micro_batches = 2,
                                     .device = "nccl"});
}

// Without NcclOptions::deterministic: the flat buffers of weights and gradients are symmetric windows, which the
// stand-in lets collectives use at one place on all ranks alone.
TEST(Nccl, TrainsOnSymmetricWindows) {
  comm::Communicator& world = bootstrap().world();
  if (world.size() == 1) GTEST_SKIP() << "one rank needs no NCCL";
  if (stand_in_nccl().empty()) GTEST_SKIP() << "no nccl.h to build the stand-in against";
  const int64_t ranks = world.size();
  for (const mesh::MeshShape& shape :
       {mesh::MeshShape{{Axis::kPipeline, 1}, {Axis::kReplica, ranks}, {Axis::kTensor, 1}},
        mesh::MeshShape{{Axis::kPipeline, 1}, {Axis::kReplica, ranks / 2}, {Axis::kTensor, 2}}}) {
    LayoutCase c{.config = config_of(kAxes[0]),
                 .dtype = DType::kFloat32,
                 .mesh = shape,
                 .micro_batches = 2,
                 .further_steps = 2,
                 .device = "nccl windows"};
    SCOPED_TRACE(str_cat(name_of(shape)));
    expect_numbers_of_one_rank(world, c);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace ashlar::testing
