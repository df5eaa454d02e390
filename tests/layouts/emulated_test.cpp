// Training on the emulated CUDA device: every mesh of these ranks computes, within the bounds of fp32 and fp64, what
// one rank on the CPU does.
#include <gtest/gtest.h>

#include <iterator>

#include "core/base/strings.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/meshes.h"
#include "tests/layouts/one_rank.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

/// A model on each mesh with so many stages, another one on the next; in the long form every model on each.
void expect_gradients_of_the_cpu(int64_t stages) {
  comm::Communicator& world = bootstrap().world();
  uint64_t turn = static_cast<uint64_t>(stages);
  for (const mesh::MeshShape& shape : meshes(world.size())) {
    if (shape.ranks() != world.size() || shape.pipeline != stages) continue;
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && shape.tensor == 1) continue;
      // One rank has no other mesh to see the other models on.
      const size_t models = long_form() || world.size() == 1 ? std::size(kAxes) : 1;
      for (size_t i = 0; i < models; ++i, ++turn) {
        const Axes& axes = kAxes[turn % std::size(kAxes)];
        LayoutCase c{.config = config_of(axes),
                     .recompute = axes.recompute,
                     .documents = axes.documents,
                     .dtype = turn % 2 == 0 ? DType::kFloat64 : DType::kFloat32,
                     .mesh = shape,
                     .sequence_parallel = sequence_parallel,
                     .micro_batches = std::max<int64_t>(2, shape.pipeline),
                     .device = "emulated"};
        c.config.n_layers = std::max(c.config.n_layers, shape.pipeline);
        SCOPED_TRACE(str_cat(axes.name, " ", name_of(c.dtype), " on ", name_of(shape),
                             sequence_parallel ? ", sequence parallel" : ""));
        expect_numbers_of_one_rank(world, c);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Emulated, SlowOneStageHasTheGradientsOfTheCpu) { expect_gradients_of_the_cpu(1); }
TEST(Emulated, SlowTwoStagesHaveTheGradientsOfTheCpu) { expect_gradients_of_the_cpu(2); }
TEST(Emulated, SlowFourStagesHaveTheGradientsOfTheCpu) {
  if (bootstrap().world().size() > 4 && !long_form()) GTEST_SKIP() << "on more than four ranks in the long form";
  expect_gradients_of_the_cpu(4);
}
TEST(Emulated, SlowEightStagesHaveTheGradientsOfTheCpu) {
  if (!long_form()) GTEST_SKIP() << "in the long form";
  expect_gradients_of_the_cpu(8);
}

}  // namespace
}  // namespace ashlar::testing
