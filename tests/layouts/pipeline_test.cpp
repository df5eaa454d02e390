// Every schedule on every pipeline x data x tensor layout of this many ranks, against one rank that runs the whole
// model micro-batch by micro-batch: gradients equal to the bit where nothing is split but the layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/base/strings.h"
#include "launch/training/engine.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/compare.h"
#include "tests/parallel/model_fixture.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

constexpr int64_t kB = 2, kT = 8, kStep = 3;
constexpr uint64_t kSeed = 7;

struct Case {
  Axes axes;
  pipeline::ScheduleKind kind;
  int64_t virtual_stages;
  int64_t micro_batches;
  DType dtype;
  int64_t turn;  ///< chooses the layouts
};

class PipelineGradients : public ::testing::TestWithParam<Case> {
 protected:
  void expect_equal(int64_t pipeline, int64_t data, int64_t tensor, bool sequence_parallel) {
    const auto& [axes, kind, virtual_stages, micro_batches, dtype, turn] = GetParam();
    SCOPED_TRACE(
        str_cat("pipeline ", pipeline, " x data ", data, " x tensor ", tensor, sequence_parallel ? " sequence" : ""));
    model::ModelConfig config = config_of(axes);
    config.n_layers = 9;  // eight stages divide it unevenly
    comm::Communicator& world = bootstrap().world();
    mesh::Mesh mesh(world, {.pipeline = pipeline, .data = data, .tensor = tensor}, config.n_kv_heads);
    const int64_t V = pipeline * virtual_stages > config.n_layers || pipeline == 1 ? 1 : virtual_stages;
    const pipeline::ScheduleSpec spec{
        .kind = kind, .stages = pipeline, .micro_batches = micro_batches, .virtual_stages = V};

    // 1. the whole model, micro-batch after micro-batch
    std::vector<std::unique_ptr<TinyModel>> sources;
    std::vector<pipeline::MicroBatch> batches;
    int64_t valid_targets = 0;
    for (int64_t m = 0; m < data * micro_batches; ++m) {
      sources.push_back(std::make_unique<TinyModel>(config, dtype, kB, kT, 1, 100 + m));
      const std::vector<int32_t>& targets = sources.back()->targets();
      const int64_t valid = std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
      batches.push_back({.view = sources.back()->batch(), .first_sample = 40 + m * kB, .valid_targets = valid});
      valid_targets += valid;
    }
    TinyModel whole(config, dtype, kB, kT, 1, kSeed);
    whole.scalars().inv_valid_tokens = 1.0 / static_cast<double>(valid_targets);
    whole.scalars().philox_step = kStep;
    Ctx ctx = whole.ctx();
    ctx.recompute = axes.recompute;
    ctx.dropout = {.enabled = true, .seed = kSeed};
    LossStats stats;
    whole.store().begin_step();
    for (const auto& batch : batches) {
      Tape tape(whole.backend(), ctx.stream);
      Ctx c = ctx;
      c.tape = &tape;
      c.dropout.first_sample = batch.first_sample;
      c.dropout.sequence_length = kT;
      const model::Stage& stage = whole.stage();
      stage.loss(c, stage.blocks(c, stage.embed(c, batch.view), batch.view), batch.view, stats);
      tape.backward();
    }

    const optim::GradNorm expected_norm = optim::grad_norm(ctx, whole.store(), whole.store().grads());
    const double clip = 0.3 * expected_norm.norm;

    // 2. its stages
    const auto backend = kernels::make_cpu_backend({.threads = 1});
    const auto stream = backend->make_stream();
    pipeline::Stream done;
    training::Engine engine(*backend, *stream, mesh,
                            {.model = config,
                             .dtype = dtype,
                             .optimizer = optim::AdamWOptions{},
                             .clip = clip,
                             .recompute = axes.recompute,
                             .seed = kSeed,
                             .sequence_length = kT,
                             .sequence_parallel = sequence_parallel,
                             .schedule = kind,
                             .virtual_stages = V,
                             .bucket_elems = 700,
                             .after_action = [&](const pipeline::Action& a) { done.push_back(a); }});
    engine.initialize();
    const auto mine = std::span(batches).subspan(mesh.at().data * micro_batches, micro_batches);
    engine.forward_backward(mine, kStep);
    EXPECT_GT(engine.replicas().late_buckets(), 0) << "the first step teaches when buckets are complete";
    EXPECT_EQ(done, pipeline::make_schedule(spec, mesh.at().pipeline));
    // Once more, with buckets that leave during backward.
    training::StepResult result = engine.forward_backward(mine, kStep);
    EXPECT_EQ(engine.replicas().late_buckets(), 0);

    // 3. the same numbers: bits where only layers are split, otherwise up to the order of sums
    const bool exact = tensor == 1 && data == 1;
    const double bound = dtype == DType::kFloat64 ? 1e-11 : 2e-5;
    EXPECT_EQ(result.valid_targets, valid_targets);
    EXPECT_EQ(result.tokens, data * micro_batches * kB * kT);
    const double expected_loss = stats.loss / static_cast<double>(valid_targets);
    EXPECT_NEAR(result.loss, expected_loss, exact ? 0 : bound * expected_loss);
    const double expected_z = stats.z_loss / static_cast<double>(valid_targets);
    EXPECT_NEAR(result.z_loss, expected_z, exact ? 0 : bound * expected_loss);
    const double expected_log_z = stats.log_z / static_cast<double>(valid_targets);
    EXPECT_NEAR(result.mean_log_z, expected_log_z, exact ? 0 : bound * std::abs(expected_log_z));
    EXPECT_NEAR(result.max_log_z, stats.max_log_z, exact ? 0 : bound * std::abs(stats.max_log_z));
    EXPECT_NEAR(result.max_logit, stats.max_logit, exact ? 0 : bound * std::abs(stats.max_logit));
    const double all = norm_of(whole.host(whole.store().grads()));
    ASSERT_GT(all, 0.01);
    const std::vector<nn::PieceRange>& ranges = engine.optimizer()->ranges();
    for (const nn::PieceRange& range : ranges) {
      const nn::Piece& piece = *range.ref->piece;
      const std::vector<double> reference = whole.gradient(piece.name);
      std::vector<double> part = slice_of(reference, piece);
      part = {part.begin() + range.first, part.begin() + range.first + range.size};
      const std::vector<double> gradient =
          host_values(engine.ctx(), engine.store().grads().flat_range(range.slab_begin, range.size));
      // A tied table adds up its two uses in the order of the schedule.
      const bool tied_table = config.tied && piece.name == "embed.tokens.weight";
      if (exact && !tied_table) {
        EXPECT_EQ(gradient, part) << piece.name;
      } else {
        const double loose = exact ? (dtype == DType::kFloat64 ? 1e-11 : 2e-6) : bound;
        expect_close(piece.name, gradient, part, norm_of(reference), all, loose);
      }
    }
    expect_counted_once(world, whole.store(), engine.store(), ranges);
    EXPECT_EQ(engine.gradient_norm().squares.size(), expected_norm.squares.size());
    EXPECT_NEAR(result.grad_norm, expected_norm.norm, exact && !config.tied ? 0 : bound * expected_norm.norm);

    // 4. an update with clipped gradients: each rank has all values of its slices, whoever computed them, when an
    // operation reads them
    const Tensor before = whole.ctx().empty(whole.store().values().dtype(), whole.store().values().shape());
    ctx.backend.copy({.src = whole.store().values().view(), .dst = before.mut_view()}, ctx.stream);
    optim::Optimizer optimizer(ctx, whole.store(), optim::AdamWOptions{}, nn::SlabParts::whole(whole.store()));
    whole.scalars().lr = 0.01;
    whole.scalars().beta1_correction = 1 - std::pow(optim::AdamWOptions{}.beta1, kStep + 1);
    whole.scalars().beta2_correction = 1 - std::pow(optim::AdamWOptions{}.beta2, kStep + 1);
    whole.scalars().clip_scale = clip / expected_norm.norm;
    optimizer.step(ctx);
    engine.update(result, kStep, 0.01);
    const model::Stage& updated = whole.stage();
    LossStats after;
    for (const auto& batch : batches)
      updated.loss(whole.ctx(), updated.blocks(whole.ctx(), updated.embed(whole.ctx(), batch.view), batch.view),
                   batch.view, after);
    LossStats own;
    engine.evaluate(mine, own);
    EXPECT_NEAR(engine.total(own).loss, after.loss, (exact && !config.tied ? 0 : 1e-3) * after.loss);
    for (const auto& parameter : engine.store().parameters())
      EXPECT_EQ(parameter->weight.arrival, nullptr) << parameter->name << " was read before it was there";
    engine.wait_weights();
    EXPECT_NEAR(result.clip_scale, 0.3, bound);
    const double scale = (1 - optim::AdamWOptions{}.beta1) * clip / expected_norm.norm;  // of a first moment
    for (const nn::PieceRange& range : ranges) {
      const nn::Piece& piece = *range.ref->piece;
      std::vector<double> moments = whole.gradient(piece.name);
      for (double& x : moments) x *= scale;
      const std::vector<double> part = slice_of(moments, piece);
      expect_close(piece.name + ".m", host_values(engine.ctx(), engine.optimizer()->m().of(range)),
                   {part.begin() + range.first, part.begin() + range.first + range.size}, norm_of(moments), scale * all,
                   bound);
    }
    for (const auto& ref : engine.store().pieces()) {
      const nn::Piece& piece = *ref.piece;
      const auto part_of = [&](const Tensor& slab) {
        return slice_of(whole.host(nn::ParameterStore::of(slab, *whole.store().find(piece.name))), piece);
      };
      const std::vector<double> values =
          host_values(engine.ctx(), nn::ParameterStore::of(engine.store().values(), ref));
      const std::vector<double> expected = part_of(whole.store().values());
      if (exact && !config.tied) {
        EXPECT_EQ(values, expected) << piece.name;
        continue;
      }
      // Adam's first step is near the sign of a gradient, and a key bias has none but noise.
      if (piece.name.ends_with("attn.k.bias")) continue;
      std::vector<double> error, moved = part_of(before);
      for (size_t i = 0; i < values.size(); ++i) {
        error.push_back(values[i] - expected[i]);
        moved[i] -= expected[i];
      }
      ASSERT_GT(norm_of(moved), 0) << piece.name;
      EXPECT_LT(norm_of(error), 0.02 * norm_of(moved)) << piece.name;
    }
  }
};

// Each schedule meets every layout, with models and dtypes that rotate; the long form takes the full product.
TEST_P(PipelineGradients, AreThoseOfOneRank) {
  const int ranks = bootstrap().world().size();
  int64_t layout = 0;
  const auto chosen = [&] { return long_form() || layout++ % 3 == GetParam().turn % 3; };
  for (int64_t pipeline = 1; pipeline <= ranks; ++pipeline) {
    for (int64_t data = 1; data <= ranks / pipeline; ++data) {
      if (ranks % (pipeline * data) != 0 || !chosen()) continue;
      expect_equal(pipeline, data, ranks / (pipeline * data), false);
      if (HasFailure()) return;
    }
  }
  for (const int64_t pipeline : {1, 2})
    if (ranks >= 4 && chosen()) expect_equal(pipeline, ranks / (2 * pipeline), 2, true);
}

// Axes rotate over schedules: each schedule meets every axis and both dtypes, without the full product.
std::vector<Case> cases() {
  using enum pipeline::ScheduleKind;
  const std::pair<pipeline::ScheduleKind, int64_t> kSchedules[] = {
      {kGpipe, 1}, {k1F1B, 1}, {kInterleaved, 2}, {kZbH1, 1}};
  std::vector<Case> all;
  int64_t turn = 0, schedule = 0;
  for (const auto& [kind, chunks] : kSchedules) {
    ++schedule;
    for (size_t i = 0; i < std::size(kAxes); ++i, ++turn) {
      if (turn % 2 == 1 && kind == kGpipe) continue;
      all.push_back({.axes = kAxes[i],
                     .kind = kind,
                     .virtual_stages = chunks,
                     .micro_batches = 1 + (turn * 5) % 7,
                     .dtype = turn % 5 < 2 ? DType::kFloat64 : DType::kFloat32,
                     .turn = turn + schedule});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Layouts, PipelineGradients, ::testing::ValuesIn(cases()), [](const auto& at) {
  std::string kind(pipeline::name_of(at.param.kind));
  std::erase(kind, '-');
  return str_cat(at.param.axes.name, "_", kind, "_", name_of(at.param.dtype), "_", at.param.micro_batches);
});

}  // namespace
}  // namespace ashlar::testing
