#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/make_backend.h"
#include "launch/plan/dry_run.h"
#include "launch/training/engine_options.h"
#include "launch/training/evaluation.h"
#include "launch/training/step_batches.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/meshes.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/ranks.h"

// What a dry run says that a rank allocates, against what the rank allocates: every model of axes.h on this many ranks,
// meshes, schedules, recomputation and micro-batches taking turns; on several ranks an eighth of the models, all in the
// long form.

namespace ashlar::testing {
namespace {

using plan::RankMemory;

constexpr int64_t kPlannedLayers = 4;

/// Sizes at which scratch of kernels counts, beside the small ones of axes.h.
model::ModelConfig larger(model::ModelConfig c) {
  c.d_model = 96;
  c.d_ff = 160;
  c.vocab_size = 1000;
  if (c.embed_dim) c.embed_dim = 64;
  return c;
}

config::RunConfig run_of(const model::ModelConfig& model, const mesh::MeshShape& shape, int64_t turn) {
  using enum pipeline::PipelineSchedule;
  constexpr pipeline::PipelineSchedule kSchedules[] = {k1F1B, kGpipe, kZbH1, kInterleaved};
  constexpr Recompute kRecompute[] = {Recompute::kNone, Recompute::kSelective, Recompute::kBlock};
  config::RunConfig c;
  c.model = model;
  c.model.n_layers = kPlannedLayers;
  c.run.dtype = turn % 3 == 0 ? DType::kFloat32 : DType::kBFloat16;
  c.run.threads = bootstrap().world().size() == 1 ? 1 + turn % 2 : 1;
  c.mesh = {.tensor = shape[Axis::kTensor],
            .pipeline = shape[Axis::kPipeline],
            .data = shape.size(kSampleAxes),
            .expert = shape[Axis::kExpert],
            .sequence_parallel = turn % 2 == 1,
            .schedule = kSchedules[turn % 4]};
  if (c.mesh.schedule == kInterleaved && c.mesh.pipeline == 2) c.mesh.virtual_stages = 2;
  c.train.recompute = kRecompute[turn % 3];
  c.train.micro_batch = 2;
  c.train.sequence_length = 16;
  c.train.global_batch = 2 * c.mesh.data * (1 + turn % 7);
  c.train.steps = 2;
  c.log.stats_every = turn % 2;
  if (turn % 4 == 1) c.optimizer.rule.state_dtype = optim::StateDType::kBFloat16;
  return c;
}

/// Trains, validates and computes statistics as a trainer does; returns the bytes of each allocator.
std::array<int64_t, kNumMemoryKinds> bytes_of_run(const config::RunConfig& c) {
  const auto backend = kernels::make_backend({.threads = static_cast<int>(c.run.threads)});
  const auto stream = backend->make_stream();
  mesh::Mesh mesh(bootstrap().world(), training::shape_of(c.mesh));
  training::Engine engine(*backend, *stream, mesh, training::engine_options(c));
  engine.initialize();
  data::Batch batch;
  data::resize_batch(batch, c.train.micro_batch, c.train.sequence_length, {});
  std::vector<int32_t> row, counts;
  for (int64_t b = 0; b < c.train.micro_batch; ++b) {
    row.clear();
    for (int64_t t = 0; t <= c.train.sequence_length; ++t)
      row.push_back(static_cast<int32_t>((t * t + 7 * b + mesh.index(kSampleAxes)) % 32));
    data::fill_row(batch, b, row, -1, {});
  }
  ignore_masked_targets(batch);
  data::fill_order(batch, static_cast<int32_t>(c.model.vocab_size), counts);
  const auto micro_batches = static_cast<size_t>(training::num_micro_batches(c));
  std::vector<training::DeviceBatch> current(micro_batches), next(micro_batches);
  const auto read = [&] {
    for (training::DeviceBatch& slot : next) slot.upload(engine.ctx(), batch);
  };
  read();
  const training::StepCounts counted{.tokens = 32, .valid_targets = 32};
  for (int64_t step = 0; step < c.train.steps; ++step) {
    std::swap(current, next);
    if (c.log.stats_every > 0) engine.measure_residual();
    engine.backward(training::micro_batches(current), step, counted);
    read();
    engine.reduce_norm();
    engine.update(step, 1e-3);
    engine.take_report();
    if (c.log.stats_every > 0) engine.residual_rms();
  }
  LossStats stats;
  std::vector<training::DeviceBatch> slots(static_cast<size_t>(4 * c.mesh.pipeline - 3));
  for (training::DeviceBatch& slot : slots) slot.upload(engine.ctx(), batch);
  engine.evaluate(training::micro_batches(slots), stats);
  engine.wait_param_sync();
  data::resize_batch(batch, c.train.micro_batch, c.train.sequence_length - 1, {});  // as the last one may be
  std::ranges::fill(batch.positions, 0);
  slots.front().upload(engine.ctx(), batch);
  std::array<int64_t, kNumMemoryKinds> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = backend->allocator(static_cast<MemoryKind>(i)).high_water_bytes();
  return bytes;
}

RankMemory planned(const config::RunConfig& c, double load) {
  const mesh::MeshShape shape = training::shape_of(c.mesh);
  return plan::dry_run({.run = c, .at = mesh::coordinates_of(shape, bootstrap().world().rank()), .load = load});
}

void expect_as_planned(const std::array<int64_t, kNumMemoryKinds>& real, const RankMemory& plan,
                       const RankMemory& loaded, const std::string& what) {
  for (size_t i = 0; i < real.size(); ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    EXPECT_GE(static_cast<double>(plan.of(kind)), 0.97 * static_cast<double>(real[i])) << what << name_of(kind);
    EXPECT_LE(static_cast<double>(plan.of(kind)), 1.03 * static_cast<double>(real[i])) << what << name_of(kind);
  }
  EXPECT_EQ(plan.rank, bootstrap().world().rank());
  EXPECT_GE(loaded.device_bytes(), plan.device_bytes()) << what;
}

TEST(PlanMemory, IsWhatEachRankAllocates) {
  std::vector<mesh::MeshShape> shapes = meshes_of(bootstrap().world().size());
  std::erase_if(shapes, [](const mesh::MeshShape& shape) { return shape[Axis::kPipeline] > kPlannedLayers; });
  int64_t turn = bootstrap().world().size();
  const int64_t every = turn == 1 || long_form() ? 1 : 8;
  for (const Axes& axes : kAxes) {
    if (++turn % every != 0) continue;
    const mesh::MeshShape& shape = shapes[static_cast<size_t>(turn / every) % shapes.size()];
    const model::ModelConfig model = turn / every % 2 == 0 ? larger(config_of(axes)) : config_of(axes);
    const config::RunConfig c = run_of(model, shape, turn / every);
    const RankMemory plan = planned(c, 1);
    expect_as_planned(bytes_of_run(c), plan, plan, str_cat(axes.name, " on ", name_of(shape), ", turn ", turn, ": "));
  }
}

// With experts over ranks, the rows that arrive are known only when tokens are routed.
TEST(PlanMemory, OfExpertsOverRanksLiesBetweenEvenAndOneSidedRouting) {
  const int64_t ranks = bootstrap().world().size();
  if (ranks == 1) GTEST_SKIP() << "needs several ranks";
  bool tested = false;
  for (const Axes& axes : kAxes) {
    if (axes.moe.experts < ranks || (tested && !long_form())) continue;
    tested = true;
    const mesh::MeshShape shape{{Axis::kExpert, ranks}};
    config::RunConfig c = run_of(larger(config_of(axes)), shape, 1);
    c.train.global_batch = 4 * ranks;
    const auto real = bytes_of_run(c);
    const RankMemory even = planned(c, 1), loaded = planned(c, plan::kAllToOneRank), more = planned(c, 1.5);
    for (const MemoryKind kind : {MemoryKind::kParameters, MemoryKind::kGradients, MemoryKind::kOptimizer})
      EXPECT_EQ(even.of(kind), real[static_cast<size_t>(kind)]) << axes.name << name_of(kind);
    const int64_t activations = real[static_cast<size_t>(MemoryKind::kActivations)];
    EXPECT_LE(activations, loaded.of(MemoryKind::kActivations)) << axes.name;
    EXPECT_LT(even.of(MemoryKind::kActivations), loaded.of(MemoryKind::kActivations)) << axes.name;
    EXPECT_LT(even.of(MemoryKind::kActivations), more.of(MemoryKind::kActivations)) << axes.name;
    EXPECT_LE(more.of(MemoryKind::kActivations), loaded.of(MemoryKind::kActivations)) << axes.name;
    EXPECT_EQ(planned(c, static_cast<double>(ranks)).of(MemoryKind::kActivations), loaded.of(MemoryKind::kActivations))
        << axes.name << ": with as many times their share as there are ranks, the experts get all tokens";
  }
}

}  // namespace
}  // namespace ashlar::testing
