// Sums that layers declare: on the device while a step is computed, over the message of the step, to metrics.jsonl.
// Every mesh has the numbers of one rank.
#include "core/nn/layer_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "core/autograd/recompute.h"
#include "core/ops/residual.h"
#include "launch/training/metrics_file.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/layer_probe.h"
#include "tests/layouts/meshes.h"
#include "tests/layouts/on_mesh.h"

namespace ashlar::testing {
namespace {

using ::testing::ElementsAre;

std::vector<double> values_of(const Ctx& ctx, const nn::LayerMetrics& sums) { return host_values(ctx, sums.values()); }

TEST(LayerMetrics, AreDeclaredOnceAndAddedWhileRecording) {
  const auto backend = kernels::make_backend({.threads = 1});
  const auto stream = backend->make_stream();
  Ctx ctx{.backend = *backend, .stream = *stream, .dtype = DType::kFloat64, .scalars = {}};
  nn::LayerMetrics sums;
  const nn::DeclaredMetric total = sums.declare({.metric = "total"});
  const nn::DeclaredMetric largest = sums.declare({.metric = "largest", .join = nn::Join::kMax});
  const nn::DeclaredMetric again = sums.declare({.metric = "total"});  // by a second layer
  EXPECT_THROW(sums.declare({.metric = "total", .join = nn::Join::kMax}), Bug);
  EXPECT_THROW(sums.declare({.metric = "two words"}), Bug);
  sums.allocate(ctx);
  sums.begin_step(ctx);
  const Tensor three = ctx.empty(DType::kFloat64, {1});
  backend->fill({.dst = three.mut_view(), .value = 3}, *stream);

  total.add(ctx, three);
  EXPECT_FALSE(largest.slot(ctx)) << "evaluation";
  EXPECT_THAT(values_of(ctx, sums), ElementsAre(0, nn::LayerMetrics::kLeastMaximum));
  Tape tape(*backend, *stream);
  ctx.tape = &tape;
  total.add(ctx, three);
  again.add(ctx, three);
  backend->fill({.dst = largest.slot(ctx), .value = 5}, *stream);
  EXPECT_THAT(values_of(ctx, sums), ElementsAre(6, 5));

  // A block that is recomputed runs twice and adds once.
  const Var x = tape.leaf(ctx.empty(DType::kFloat64, {2, 2}), {});
  const Var y = recompute(ctx, x, [&](const Ctx& inner, const Var& in) {
    total.add(inner, three);
    return ops::residual(inner, &in, {.value = in}, nullptr);
  });
  tape.seed(y, ctx.empty(DType::kFloat64, {2, 2}));
  tape.backward(nullptr);
  EXPECT_THAT(values_of(ctx, sums), ElementsAre(9, 5));
  sums.begin_step(ctx);
  EXPECT_THAT(values_of(ctx, sums), ElementsAre(0, nn::LayerMetrics::kLeastMaximum));
}

TEST(GlobalLayerMetrics, AreThoseOfOneRankOnEveryMesh) {
  model::ModelConfig config = config_of({.name = "Sums"});
  config.n_layers = 8;
  TinyModel source(config, DType::kFloat64, 2, 16);
  const int64_t kBatches = 4;
  std::map<std::string, double> one;
  for (const mesh::MeshShape& shape : meshes(bootstrap().world().size())) {
    SCOPED_TRACE(name_of(shape));
    const int64_t replicas = shape.size(kSampleAxes), tensor = shape[Axis::kTensor];
    LayerProbe probe(/*first_stage=*/bootstrap().world().rank() % shape.ranks() < replicas * tensor);
    OnMesh on(shape, config, DType::kFloat64,
              {.declare_sums = [&](nn::LayerMetrics& sums) { probe.declare(sums); },
               .after_block = [&](const Ctx& ctx, int64_t layers, const Tensor& x) { probe.see(ctx, layers, x); }});
    on.engine.initialize();
    const std::vector<pipeline::MicroBatch> batches(static_cast<size_t>(kBatches / std::min(replicas, kBatches)),
                                                    {.view = source.batch(), .valid_targets = 7});
    on.engine.forward_backward(batches, 1);
    on.engine.measure_residual();
    const training::StepResult result = on.engine.forward_backward(batches, 1);  // starts at zero again
    const std::map<std::string, double> got(result.layers.begin(), result.layers.end());
    ASSERT_EQ(got.size(), 4U);
    const auto micro_batches = static_cast<double>(batches.size() * static_cast<size_t>(replicas));
    EXPECT_EQ(got.at("probe_blocks"), (8 + 1) * micro_batches * static_cast<double>(tensor)) << "of all ranks";
    EXPECT_EQ(got.at("probe_deepest"), 8) << "of the last stage";
    EXPECT_EQ(got.at("probe_embedded"), micro_batches) << "known to the first stage alone, and told by one tensor rank";
    if (one.empty()) one = got;
    EXPECT_NEAR(got.at("probe_squares"), one.at("probe_squares"), 1e-12 * one.at("probe_squares"));
    // The same another way: mean squares of all positions of the residual stream.
    double squares = 0;
    for (const double rms : on.engine.residual_rms()) squares += rms * rms * config.d_model;
    EXPECT_NEAR(got.at("probe_squares"), squares, 1e-12 * squares);
    const nlohmann::json row = nlohmann::json::parse(to_json(training::StepEvent{.step = 2, .result = result}));
    for (const auto& [metric, value] : got) EXPECT_EQ(row.at(metric), value);
  }
}

}  // namespace
}  // namespace ashlar::testing
