// What an engine says of a model without training it, on every pipeline x data x tensor layout of this many ranks (and
// with experts divided over replicas, which have different numbers of micro-batches), and the logits of tensor ranks:
// against one rank that has the whole model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/base/strings.h"
#include "kernels/make_backend.h"
#include "launch/training/engine.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/compare.h"
#include "tests/layouts/meshes.h"
#include "tests/parallel/model_fixture.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

constexpr uint64_t kSeed = 7;

double bound_of(DType dtype) { return dtype == DType::kFloat64 ? 1e-11 : 2e-5; }

class Evaluation : public ::testing::TestWithParam<ModelCase> {
 protected:
  void expect_equal(const mesh::MeshShape& shape, bool sequence_parallel) {
    const auto& [axes, dtype, turn] = GetParam();
    SCOPED_TRACE(str_cat(name_of(shape), sequence_parallel ? " sequence" : ""));
    const int64_t replicas = shape.size(kSampleAxes);
    model::ModelConfig config = config_of(axes);
    config.n_layers = 9;  // eight stages divide it unevenly
    mesh::Mesh mesh(bootstrap().world(), shape);

    // 1. the whole model: the loss of each replica's micro-batches (two, none, one, ...), the residual stream of its
    // first one
    TinyModel whole(config, dtype, kB, kT, 1, kSeed);
    const auto num_of = [](int64_t replica) { return (replica + 2) % 3; };
    std::vector<std::unique_ptr<RandomTokens>> sources;
    std::vector<pipeline::MicroBatch> mine;
    const Tensor sums = whole.ctx().make_struct(LossStats{});
    std::vector<double> rms(config.n_layers + 1, 0.0);
    for (int64_t replica = 0; replica < replicas; ++replica) {
      for (int64_t m = 0; m < 2; ++m) {
        sources.push_back(std::make_unique<RandomTokens>(whole.ctx(), config, kB, kT, 100 + 2 * replica + m));
        const model::BatchView view = sources.back()->batch();
        if (replica == mesh.index(kSampleAxes)) mine.push_back({.view = view});
        const auto see = [&](int64_t layers, const Tensor& rows) {
          if (m == 0) rms[layers] += std::pow(norm_of(whole.host(rows)), 2);
        };
        const model::Stage& stage = whole.stage();
        const Var embedded = stage.embed(whole.ctx(), view);
        see(0, embedded.value);
        const Var rows = stage.blocks(whole.ctx(), embedded, view, see);
        if (m < num_of(replica)) stage.loss(whole.ctx(), rows, view, sums.mut_view());
      }
    }
    const LossStats expected = whole.ctx().read_struct<LossStats>(sums);
    for (double& x : rms) x = std::sqrt(x / static_cast<double>(replicas * kB * kT * config.d_model));

    // 2. its stages
    const auto backend = kernels::make_backend({.threads = 1});
    const auto stream = backend->make_stream();
    training::Engine engine(
        *backend, *stream, mesh,
        {.model = config,
         .dtype = dtype,
         .recompute = axes.recompute,
         .seed = kSeed,
         .sequence_length = kT,
         .sequence_parallel = sequence_parallel,
         .virtual_stages =
             turn % 2 == 1 && shape[Axis::kPipeline] > 1 && 2 * shape[Axis::kPipeline] <= config.n_layers ? 2 : 1});
    engine.initialize();
    LossStats own;
    engine.evaluate(std::span(mine).first(num_of(mesh.index(kSampleAxes))), own);
    const LossStats stats = engine.total(own);
    const double bound = bound_of(dtype) * std::abs(expected.loss);
    EXPECT_EQ(stats.valid, expected.valid);
    EXPECT_NEAR(stats.loss, expected.loss, bound);
    EXPECT_NEAR(stats.z_loss, expected.z_loss, bound);
    EXPECT_NEAR(stats.log_z, expected.log_z, bound);
    EXPECT_NEAR(stats.max_log_z, expected.max_log_z, bound_of(dtype) * std::abs(expected.max_log_z));
    EXPECT_NEAR(stats.max_logit, expected.max_logit, bound_of(dtype) * std::abs(expected.max_logit));
    engine.measure_residual();
    engine.evaluate(std::span(mine).first(1), own);
    const std::vector<double> measured = engine.residual_rms();
    ASSERT_EQ(measured.size(), rms.size());
    for (size_t i = 0; i < rms.size(); ++i) EXPECT_NEAR(measured[i], rms[i], bound_of(dtype) * rms[i]) << i;
  }
};

// Models rotate over layouts; the long form takes the full product.
TEST_P(Evaluation, IsThatOfOneRank) {
  const int64_t ranks = bootstrap().world().size();
  const Axes& axes = GetParam().axes;
  int64_t layout = 0;
  const auto chosen = [&] { return long_form() || layout++ % 3 == GetParam().turn % 3; };
  for (int64_t pipeline = 1; pipeline <= ranks; pipeline *= 2) {
    for (int64_t data = 1; data <= ranks / pipeline; data *= 2) {
      const mesh::MeshShape shape{
          {Axis::kPipeline, pipeline}, {Axis::kReplica, data}, {Axis::kTensor, ranks / pipeline / data}};
      if (chosen()) expect_equal(shape, false);
      if (shape[Axis::kTensor] > 1 && chosen()) expect_equal(shape, true);
      const bool divides = axes.moe.experts > 0 && data > 1 && shape[Axis::kTensor] <= 2 && pipeline <= 2;
      const bool turn = ranks == 2 || (pipeline + shape[Axis::kTensor] + GetParam().turn) % 2 == 0;
      if (!divides || !(turn || long_form())) continue;
      const int64_t expert = pipeline == 1 && shape[Axis::kTensor] == 1 ? std::min<int64_t>(data, 4) : 2;
      expect_equal({{Axis::kPipeline, pipeline},
                    {Axis::kReplica, data / expert},
                    {Axis::kExpert, expert},
                    {Axis::kTensor, shape[Axis::kTensor]}},
                   shape[Axis::kTensor] > 1);
    }
  }
}

// Rows are whole on every tensor rank while decoding, however training shards them. The ranks of an expert group decode
// the same samples.
TEST_P(Evaluation, DecodesToTheLogitsOfOneRank) {
  const auto& [axes, dtype, turn] = GetParam();
  const model::ModelConfig config = config_of(axes);
  comm::Communicator& world = bootstrap().world();
  const int64_t expert = axes.moe.experts > 0 && world.size() > 1 ? 2 : 1;
  mesh::Mesh mesh(world, {{Axis::kExpert, expert}, {Axis::kTensor, world.size() / expert}});
  const auto logits = [](TinyModel& m) {
    const model::Stage& stage = m.stage();
    model::KvCache cache = stage.make_cache(m.ctx(), kB, kT);
    return m.host(stage.logits(m.ctx(), stage.decode(m.ctx(), Tensor(), m.batch(), cache)));
  };
  TinyModel whole(config, dtype, kB, kT);
  const std::vector<double> expected = logits(whole);
  for (const bool sequence_parallel : {false, true}) {
    TinyModel part(config, dtype, kB, kT, 1, kSeed,
                   {.group = &mesh.group(Axis::kTensor),
                    .expert_group = &mesh.group(Axis::kExpert),
                    .sequence_parallel = sequence_parallel});
    expect_close("logits", logits(part), expected, norm_of(expected), 0, bound_of(dtype));
  }
}

std::vector<ModelCase> evaluation_cases() {
  std::vector<ModelCase> all;
  for (const Axes& axes : kAxes) {
    const auto turn = static_cast<int64_t>(all.size());
    all.push_back({.axes = axes, .dtype = turn % 2 == 0 ? DType::kFloat64 : DType::kFloat32, .turn = turn});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, Evaluation, ::testing::ValuesIn(evaluation_cases()),
                         [](const auto& at) { return str_cat(at.param.axes.name, "_", name_of(at.param.dtype)); });

}  // namespace
}  // namespace ashlar::testing
