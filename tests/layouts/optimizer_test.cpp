// Update rules on several ranks: state cut between tensors against state cut anywhere.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/layouts/axes.h"
#include "tests/layouts/meshes.h"
#include "tests/layouts/on_mesh.h"
#include "tests/layouts/train_steps.h"
#include "tests/support/long_form.h"

namespace ashlar::testing {
namespace {

/// Enough layers for every pipeline.
model::ModelConfig deep(const Axes& axes) {
  model::ModelConfig config = config_of(axes);
  config.n_layers = std::max<int64_t>(config.n_layers, bootstrap().world().size());
  return config;
}

/// The meshes of all ranks.
std::vector<mesh::MeshShape> whole_meshes() {
  std::vector<mesh::MeshShape> all = meshes(bootstrap().world().size());
  std::erase_if(all, [](const mesh::MeshShape& shape) { return shape.ranks() != bootstrap().world().size(); });
  return all;
}
bool too_many() { return bootstrap().world().size() > 4 && !long_form(); }

// Only whose state an element is changes, so every bit of losses and weights stays. Norms add up in another order where
// a chunk is cut: nothing is clipped here.
TEST(OptimizerOnMesh, StateInWholeTensorsHasTheBitsOfStateCutAnywhere) {
  if (too_many()) GTEST_SKIP() << "four ranks and fewer, and the long form";
  for (const mesh::MeshShape& shape : whole_meshes()) {
    if (shape.data == 1) continue;
    for (const auto& [model, dtype] : {std::pair(3, DType::kBFloat16), std::pair(4, DType::kFloat32)}) {
      const Axes& axes = kAxes[model];  // a tied table, KV heads that tensor ranks share
      SCOPED_TRACE(str_cat(axes.name, " on ", name_of(shape)));
      OnMesh element(shape, deep(axes), dtype, {.cut = optim::Cut::kElement});
      OnMesh whole(shape, deep(axes), dtype, {.cut = optim::Cut::kTensor});
      for (const nn::ShardedRange& range : whole.engine.optimizer()->ranges())
        EXPECT_EQ(range.size, range.ref->tensor->size()) << range.ref->tensor->name;
      element.engine.initialize();
      whole.engine.initialize();
      EXPECT_EQ(train(whole.engine, 0, 3), train(element.engine, 0, 3));
      element.engine.wait_param_sync();
      whole.engine.wait_param_sync();
      EXPECT_EQ(host_values(whole.engine.ctx(), whole.engine.store().values()),
                host_values(element.engine.ctx(), element.engine.store().values()));
    }
  }
}

}  // namespace
}  // namespace ashlar::testing
