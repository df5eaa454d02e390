// Update rules on several ranks: state cut between tensors against state cut anywhere, Lion, whose steps are signs, and
// state in bf16, whose rounding is drawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/save.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/meshes.h"
#include "tests/layouts/on_mesh.h"
#include "tests/layouts/one_rank.h"
#include "tests/layouts/train_steps.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/shared_dir.h"

namespace ashlar::testing {
namespace {

optim::OptimizerOptions lion_options() { return optim::rule_of(optim::OptimizerKind::kLion).defaults; }

optim::OptimizerOptions narrow_options() { return {.state_dtype = optim::StateDType::kBFloat16, .rounding_seed = 5}; }

/// Enough layers for every pipeline.
model::ModelConfig deep(const Axes& axes) {
  model::ModelConfig config = config_of(axes);
  config.n_layers = std::max<int64_t>(config.n_layers, bootstrap().world().size());
  return config;
}

bool too_many() { return bootstrap().world().size() > 4 && !long_form(); }

// Only whose state an element is changes, so every bit of losses and weights stays. Norms add up in another order where
// a chunk is cut: nothing is clipped here.
TEST(OptimizerOnMesh, StateInWholeTensorsHasTheBitsOfStateCutAnywhere) {
  if (too_many()) GTEST_SKIP() << "four ranks and fewer, and the long form";
  for (const mesh::MeshShape& shape : meshes_of(bootstrap().world().size())) {
    if (shape[Axis::kReplica] == 1) continue;
    for (const auto& [model, dtype, narrow] :
         {std::tuple(3, DType::kBFloat16, false), std::tuple(4, DType::kFloat32, false),
          std::tuple(3, DType::kBFloat16, true)}) {
      const Axes& axes = kAxes[model];  // a tied table, KV heads that tensor ranks share
      SCOPED_TRACE(str_cat(axes.name, " on ", name_of(shape), narrow ? " in bf16" : ""));
      const optim::OptimizerOptions options = narrow ? narrow_options() : optim::OptimizerOptions{};
      OnMesh element(shape, deep(axes), dtype, {.optimizer = options, .shard_unit = optim::ShardUnit::kElement});
      OnMesh whole(shape, deep(axes), dtype, {.optimizer = options, .shard_unit = optim::ShardUnit::kTensor});
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

// What rounding does to a gradient near zero, the sign makes a whole step of: such weights may differ by twice the rate
// (one_rank.cpp bounds each by its gradient), all others by roundings, and the loss by next to nothing, since where the
// gradient is near zero the weight hardly matters. Pipelines alone change no bit.
TEST(OptimizerOnMesh, LionHasTheNumbersOfOneRank) {
  if (too_many()) GTEST_SKIP() << "four ranks and fewer, and the long form";
  size_t turn = 0;
  for (const mesh::MeshShape& shape : meshes_of(bootstrap().world().size())) {
    const Axes& axes = kAxes[turn % std::size(kAxes)];
    const DType dtype = turn++ % 2 == 0 ? DType::kFloat64 : DType::kFloat32;
    SCOPED_TRACE(str_cat(axes.name, " in ", ashlar::name_of(dtype), " on ", name_of(shape)));
    expect_numbers_of_one_rank(bootstrap().world(), {.config = deep(axes),
                                                     .dtype = dtype,
                                                     .mesh = shape,
                                                     .micro_batches = 2,
                                                     .optimizer = lion_options(),
                                                     .lr = 1e-3,
                                                     .further_steps = 2});
  }
}

/// The elements of a range, from those of the global tensor.
std::vector<double> range_in(const std::vector<double>& global, const nn::ShardedRange& range) {
  const nn::ShardedTensor& tensor = *range.ref->tensor;
  std::vector<double> part;
  for (int64_t i = range.first; i < range.first + range.size; ++i) {
    const int64_t row = tensor.global_row + i / tensor.cols, col = tensor.global_col + i % tensor.cols;
    part.push_back(global[static_cast<size_t>(row * tensor.global_shape.cols() + col)]);
  }
  return part;
}

// Each element has the same gradients on every mesh, so that its rounded moments and its weight must be the same too,
// to the bit, whichever rank holds it as part of whatever rows and columns.
TEST(OptimizerOnMesh, NarrowStateHasTheBitsOfOneRank) {
  if (too_many()) GTEST_SKIP() << "four ranks and fewer, and the long form";
  const Element positive = [](uint64_t name, int64_t row, int64_t col) { return std::abs(element(name, row, col)); };
  for (const mesh::MeshShape& shape : meshes_of(bootstrap().world().size())) {
    for (const optim::OptimizerKind kind : {optim::OptimizerKind::kAdamW, optim::OptimizerKind::kLion}) {
      SCOPED_TRACE(str_cat(optim::name_of(kind), " on ", name_of(shape)));
      optim::OptimizerOptions options = narrow_options();
      options.kind = kind;
      const model::ModelConfig config = deep(kAxes[4]);
      OnMesh one({}, config, DType::kFloat32, {.optimizer = options});
      OnMesh many(shape, config, DType::kFloat32, {.optimizer = options});
      for (OnMesh* const on : {&one, &many}) {
        on->fill(positive);
        for (int64_t step = 0; step < 3; ++step) {
          const training::Engine& engine = on->engine;
          for (const auto& ref : engine.store().sharded_tensors())
            upload(on->engine.ctx(), part_of(element, str_cat(".grad", step), *ref.tensor, 0, ref.tensor->size()),
                   nn::ParameterStore::of(engine.store().grads(), ref));
          on->engine.update(step, 1e-3);
          on->engine.wait_param_sync();
        }
      }
      const auto buffers_of_one = one.buffers();
      for (size_t b = 0; b < buffers_of_one.size(); ++b) {
        const auto& [of_one, suffix] = buffers_of_one[b];
        std::map<std::string, std::vector<double>> global;
        for (const nn::ShardedRange& range : one.engine.optimizer()->ranges())
          global[range.ref->tensor->name] = host_values(one.engine.ctx(), of_one.of(range));
        const nn::FlatTensor of_many = many.buffers()[b].first;
        EXPECT_EQ(of_many.data.dtype(), suffix.empty() ? DType::kFloat32 : DType::kBFloat16);
        for (const nn::ShardedRange& range : many.engine.optimizer()->ranges())
          EXPECT_EQ(host_values(many.engine.ctx(), of_many.of(range)), range_in(global[range.ref->tensor->name], range))
              << range.ref->tensor->name << suffix;
      }
    }
  }
}

// Where sums are rounded in another order a draw may decide otherwise: such a moment is off by a unit of bf16, and each
// next loss by next to nothing. Pipelines alone change no bit.
TEST(OptimizerOnMesh, NarrowStateTrainsAsOneRankDoes) {
  if (too_many()) GTEST_SKIP() << "four ranks and fewer, and the long form";
  size_t turn = 0;
  for (const mesh::MeshShape& shape : meshes_of(bootstrap().world().size())) {
    const Axes& axes = kAxes[turn++ % std::size(kAxes)];
    SCOPED_TRACE(str_cat(axes.name, " on ", name_of(shape)));
    expect_numbers_of_one_rank(bootstrap().world(), {.config = deep(axes),
                                                     .dtype = DType::kFloat32,
                                                     .mesh = shape,
                                                     .micro_batches = 2,
                                                     .optimizer = narrow_options(),
                                                     .lr = 1e-3,
                                                     .further_steps = 3});
  }
}

TEST(OptimizerOnMesh, LionLearnsABatchByHeart) {
  if (bootstrap().world().size() > 2) GTEST_SKIP() << "one rank and two";
  OnMesh on({{Axis::kReplica, bootstrap().world().size()}}, config_of(kAxes[0]), DType::kFloat32,
            {.optimizer = lion_options()});
  on.engine.initialize();
  training::DeviceBatch slot;
  slot.upload(on.engine.ctx(), sample(on.mesh.index(kSampleAxes), on.engine.options().model.vocab_size));
  std::vector<double> losses;
  for (int64_t step = 0; step < 40; ++step) {
    losses.push_back(on.engine.forward_backward(training::micro_batches({&slot, 1}), step).loss);
    on.engine.update(step, 6e-3);
  }
  on.engine.wait_param_sync();
  EXPECT_GT(losses.front(), 3);
  EXPECT_LT(losses.back(), 0.3);
}

/// The state to the bit whoever held it; on the mesh that saved, and on pipelines, the next losses too, on other meshes
/// within `off` of them. The state must hold the elements exactly.
void expect_continuation_on_any_mesh(const optim::OptimizerOptions& options, DType dtype, Element element_of,
                                     double off) {
  comm::ControlPlane& world = bootstrap().control();
  const SharedDir dir(world);
  const std::vector<mesh::MeshShape> shapes = meshes_of(bootstrap().world().size());
  const model::ModelConfig config = deep(kAxes[3]);
  const auto load = [&](OnMesh& on, const std::filesystem::path& path) {
    checkpoint::CheckpointReader reader = checkpoint::open_checkpoint(path, on.mesh.control());
    checkpoint::load_training(
        on.engine.ctx(),
        {.ranks = on.mesh.control(), .reader = reader, .store = on.engine.store(), .optimizer = on.engine.optimizer()});
    on.engine.start_param_sync();
    on.engine.wait_param_sync();
  };
  for (size_t from = 0; from < shapes.size(); ++from) {
    OnMesh a(shapes[from], config, dtype, {.optimizer = options});
    const auto save = [&](int64_t step) {
      return checkpoint::save(a.engine.ctx(), {.ranks = a.mesh.control(),
                                               .run_dir = dir.path() / str_cat(from),
                                               .store = a.engine.store(),
                                               .optimizer = a.engine.optimizer(),
                                               .state = {.step = step}})
          .path;
    };
    a.fill(element_of);
    const std::filesystem::path filled = save(1);
    a.engine.initialize();
    train(a.engine, 0, 2);
    const std::filesystem::path trained = save(2);
    const std::vector<double> stayed = train(a.engine, 2, 5);
    a.engine.wait_param_sync();
    for (size_t onto = 0; onto < shapes.size(); ++onto) {
      const mesh::MeshShape& to = shapes[onto];
      const bool chosen = shapes.size() <= 3 || onto == from || onto == (from + 2) % shapes.size();
      if (!chosen && !long_form()) continue;  // of many, the one that stays and one that moves
      SCOPED_TRACE(str_cat("from ", name_of(shapes[from]), " to ", name_of(to)));
      OnMesh b(to, config, dtype, {.optimizer = options});
      load(b, filled);
      b.expect(element_of);
      load(b, trained);
      const std::vector<double> moved = train(b.engine, 2, 5);
      b.engine.wait_param_sync();
      const bool same =
          to[Axis::kReplica] == shapes[from][Axis::kReplica] && to[Axis::kTensor] == shapes[from][Axis::kTensor];
      for (size_t i = 0; i < stayed.size(); ++i)
        EXPECT_NEAR(moved[i], stayed[i], same ? 0 : off * stayed[i]) << i << " steps later";
    }
  }
}

TEST(OptimizerOnMesh, LionContinuesOnAnyMesh) {
  if (too_many()) GTEST_SKIP() << "four ranks and fewer, and the long form";
  expect_continuation_on_any_mesh(lion_options(), DType::kFloat64, element, 1e-9);
}

// The draws of the steps behind the checkpoint are those of a run that never stopped.
TEST(OptimizerOnMesh, NarrowStateContinuesOnAnyMesh) {
  if (too_many()) GTEST_SKIP() << "four ranks and fewer, and the long form";
  const Element narrow = [](uint64_t name, int64_t row, int64_t col) {
    const auto positive = static_cast<float>(std::abs(element(name, row, col)));  // as squares are
    return static_cast<double>(static_cast<float>(BF16(positive)));
  };
  expect_continuation_on_any_mesh(narrow_options(), DType::kFloat32, narrow, 2e-5);
}

}  // namespace
}  // namespace ashlar::testing
