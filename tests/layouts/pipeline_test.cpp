// Every schedule on every pipeline x data x tensor layout of this many ranks, against one rank that runs the whole
// model micro-batch by micro-batch: gradients equal to the bit where nothing is split but the layers.
#include <gtest/gtest.h>

#include "core/base/strings.h"
#include "parallel/comm/host.h"
#include "parallel/mesh/mesh.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/partition.h"
#include "parallel/tensor/shared_gradients.h"
#include "parallel/zero/data_parallel.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/compare.h"
#include "tests/parallel/model_fixture.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

constexpr int64_t kB = 2, kT = 8;

struct Case {
  Axes axes;
  pipeline::ScheduleKind kind;
  int64_t virtual_stages;
  int64_t micro_batches;
  DType dtype;
  int64_t turn;  ///< chooses the layouts
};

/// The stages of this rank, their parameters, and the step as the executor runs it.
class Staged {
 public:
  Staged(const model::ModelConfig& config, mesh::Mesh& mesh, const pipeline::ScheduleSpec& spec, DType dtype,
         bool sequence_parallel)
      : mesh_(mesh),
        spec_(spec),
        backend_(kernels::make_cpu_backend({.threads = 1})),
        stream_(backend_->make_stream()),
        ctx_{.backend = *backend_, .stream = *stream_, .dtype = dtype, .scalars = &scalars_},
        tp_{.group = &mesh.tensor(), .kv_group = &mesh.kv_sharers(), .sequence_parallel = sequence_parallel} {
    const pipeline::Partition cut = pipeline::partition({.layer_flops = std::vector<double>(config.n_layers, 1.0),
                                                         .embedding_flops = 0,
                                                         .head_flops = 0.6,
                                                         .stages = spec.stages,
                                                         .virtual_stages = spec.virtual_stages});
    for (int64_t c = 0; c < spec.virtual_stages; ++c) {
      const auto& range = cut.chunks[pipeline::model_chunk(mesh.at().pipeline, c, spec.stages)];
      stages_.push_back(std::make_unique<model::Stage>(store_, config, range, tp_));
    }
    store_.allocate(ctx_, true);
    plan_ = zero::make_plan(store_, {.ranks = mesh.data().size(), .bucket_elems = 700});
    optimizer_.emplace(ctx_, store_, optim::AdamWOptions{}, plan_.owned_by(mesh.data().rank()));
    replicas_.emplace(plan_, store_, mesh.data());
    optimizer_->initialize(ctx_, 7);
    replicas_->start_weights();
    replicas_->wait_weights();
    for (const auto& stage : stages_) stage->make_tables(ctx_, 64);
    rows_ = {sequence_parallel ? kB * kT / mesh.tensor().size() : kB * kT, config.d_model};
  }

  /// Sum of the losses, as the last stage has it.
  double run(std::span<const pipeline::MicroBatch> batches, const Ctx& like) {
    scalars_ = *like.scalars;
    Ctx ctx = ctx_;
    ctx.dropout = like.dropout;
    ctx.recompute = like.recompute;
    LossStats stats;
    replicas_->begin_step(static_cast<int64_t>(batches.size()));
    pipeline::ChunkRunner runner(ctx, stages_, batches, stats, [&] { replicas_->poll(); });
    const pipeline::Stream actions = pipeline::make_schedule(spec_, mesh_.at().pipeline);
    std::vector<pipeline::Action> done;
    pipeline::execute(ctx, {.spec = spec_,
                            .stream = actions,
                            .stages = mesh_.pipeline(),
                            .runner = runner,
                            .rows = rows_,
                            .after = [&](const pipeline::Action& a) { done.push_back(a); }});
    EXPECT_EQ(done, actions);
    buckets_left_ = replicas_->buckets_waiting();
    replicas_->finish();
    tensor::sum_shared_gradients(ctx, store_, ranges(), mesh_);
    return comm::sum_of(mesh_.data(), stats.loss + stats.z_loss);
  }

  /// One step of the optimizer, after `run`.
  void update(const StepScalars& scalars) {
    scalars_ = scalars;
    optimizer_->step(ctx_);
    replicas_->start_weights();
    replicas_->wait_weights();
  }

  const nn::ParameterStore& store() const { return store_; }
  const Ctx& ctx() const { return ctx_; }
  std::vector<double> gradient(const nn::PieceRange& range) const {
    return host_values(ctx_, store_.grads().flat_range(range.slab_begin, range.size));
  }
  const std::vector<nn::PieceRange>& ranges() const { return optimizer_->ranges(); }
  int64_t num_buckets() const { return static_cast<int64_t>(plan_.buckets.size()); }
  int64_t buckets_left() const { return buckets_left_; }

 private:
  mesh::Mesh& mesh_;
  pipeline::ScheduleSpec spec_;
  StepScalars scalars_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  Ctx ctx_;
  tensor::TensorParallel tp_;
  nn::ParameterStore store_;
  std::vector<std::unique_ptr<model::Stage>> stages_;
  zero::ShardPlan plan_;
  std::optional<optim::Optimizer> optimizer_;
  std::optional<zero::DataParallel> replicas_;
  Shape rows_;
  int64_t buckets_left_ = 0;
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
    for (int64_t m = 0; m < data * micro_batches; ++m) {
      sources.push_back(std::make_unique<TinyModel>(config, dtype, kB, kT, 1, 100 + m));
      batches.push_back({.view = sources.back()->batch(), .first_sample = 40 + m * kB});
    }
    TinyModel whole(config, dtype, kB, kT);
    whole.scalars().inv_valid_tokens = 1.0 / static_cast<double>(data * micro_batches * kB * kT);
    whole.scalars().philox_step = 3;
    Ctx ctx = whole.ctx();
    ctx.recompute = axes.recompute;
    ctx.dropout = {.enabled = true, .seed = 11};
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

    // 2. its stages
    Staged staged(config, mesh, spec, dtype, sequence_parallel);
    const auto mine = std::span(batches).subspan(mesh.at().data * micro_batches, micro_batches);
    staged.run(mine, ctx);
    EXPECT_EQ(staged.buckets_left(), staged.num_buckets()) << "the first step teaches when buckets are complete";
    // Once more, with buckets that leave during backward.
    const double loss = staged.run(mine, ctx);
    EXPECT_EQ(staged.buckets_left(), 0);

    // 3. the same numbers: bits where only layers are split, otherwise up to the order of sums
    const bool exact = tensor == 1 && data == 1;
    const double bound = dtype == DType::kFloat64 ? 1e-11 : 2e-5;
    if (mesh.last_stage()) {
      const double expected = stats.loss + stats.z_loss;
      EXPECT_NEAR(loss, expected, exact ? 0 : bound * std::abs(expected));
    } else {
      EXPECT_EQ(loss, 0);
    }
    const double all = norm_of(whole.host(whole.store().grads()));
    ASSERT_GT(all, 0.01);
    for (const nn::PieceRange& range : staged.ranges()) {
      const nn::Piece& piece = *range.ref->piece;
      const std::vector<double> reference = whole.gradient(piece.name);
      std::vector<double> part = slice_of(reference, piece);
      part = {part.begin() + range.first, part.begin() + range.first + range.size};
      // A tied table adds up its two uses in the order of the schedule.
      const bool tied_table = config.tied && piece.name == "embed.tokens.weight";
      if (exact && !tied_table) {
        EXPECT_EQ(staged.gradient(range), part) << piece.name;
      } else {
        const double loose = exact ? (dtype == DType::kFloat64 ? 1e-11 : 2e-6) : bound;
        expect_close(piece.name, staged.gradient(range), part, norm_of(reference), all, loose);
      }
    }
    expect_counted_once(world, staged.ctx(), whole.store(), staged.store(), staged.ranges(), exact && !config.tied,
                        bound);

    // 4. an update: each rank has all values of its slices, whoever computed them
    const Tensor before = whole.ctx().empty(whole.store().values().dtype(), whole.store().values().shape());
    ctx.backend.copy({.src = whole.store().values().view(), .dst = before.mut_view()}, ctx.stream);
    optim::Optimizer optimizer(ctx, whole.store(), optim::AdamWOptions{}, nn::SlabParts::whole(whole.store()));
    whole.scalars().lr = 0.01;
    optimizer.step(ctx);
    staged.update(whole.scalars());
    for (const auto& ref : staged.store().pieces()) {
      const nn::Piece& piece = *ref.piece;
      const auto part_of = [&](const Tensor& slab) {
        return slice_of(whole.host(nn::ParameterStore::of(slab, *whole.store().find(piece.name))), piece);
      };
      const std::vector<double> values =
          host_values(staged.ctx(), nn::ParameterStore::of(staged.store().values(), ref));
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
  if (ranks >= 4 && chosen()) expect_equal(2, ranks / 4, 2, true);
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
