#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "core/optim/grad_clip.h"
#include "core/optim/optimizer.h"
#include "parallel/pipeline/chunk_runner.h"
#include "tests/layouts/one_rank.h"
#include "tests/parallel/model_fixture.h"
#include "tests/support/routed_backend.h"

namespace ashlar::testing {

inline constexpr int64_t kStep = 3;  ///< number of the compared step
/// Selection values so near may change places by the roundings of fp32.
inline constexpr double kNearScores = 1e-5;

/// Gives the buffers of a model values that change choices.
void fill_buffers(const Ctx& ctx, const nn::ParameterStore& store);

/// The micro-batches of all replicas, in the CPU's memory.
class MicroBatches {
 public:
  explicit MicroBatches(const LayoutCase& c)
      : case_(c), backend_(kernels::make_backend({.threads = 1})), stream_(backend_->make_stream()) {
    const Ctx ctx{.backend = *backend_, .stream = *stream_, .dtype = c.dtype, .scalars = {}};
    for (int64_t m = 0; m < c.mesh.size(kSampleAxes) * c.micro_batches; ++m) {
      sources_.push_back(std::make_unique<RandomTokens>(ctx, c.config, c.B, c.T, 93 + c.seed + m));
      RandomTokens& source = *sources_.back();
      if (c.documents) source.doc_start() = documents(m);
      batches_.push_back(
          {.view = source.batch(), .first_sample = 40 + m * c.B, .valid_targets = source.valid_targets()});
      valid_targets_ += batches_.back().valid_targets;
    }
  }
  const std::vector<pipeline::MicroBatch>& all() const { return batches_; }
  std::span<const pipeline::MicroBatch> of_replica(int64_t index) const {
    return std::span(batches_).subspan(index * case_.micro_batches, case_.micro_batches);
  }
  int64_t valid_targets() const { return valid_targets_; }

 private:
  /// About every fifth token begins a document.
  std::vector<int32_t> documents(int64_t m) const {
    std::vector<int32_t> starts;
    for (int64_t n = 0; n < case_.B * case_.T; ++n) {
      const auto t = static_cast<int32_t>(n % case_.T);
      const bool begins = t == 0 || Philox::block(case_.seed, 7, m * case_.B * case_.T + n)[0] % 5 == 0;
      starts.push_back(begins ? t : starts.back());
    }
    return starts;
  }

  const LayoutCase& case_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<RandomTokens>> sources_;
  std::vector<pipeline::MicroBatch> batches_;
  int64_t valid_targets_ = 0;
};

using Tensors = std::map<std::string, std::vector<double>>;

/// The whole model on this rank.
class WholeModel {
 public:
  WholeModel(const LayoutCase& c, const MicroBatches& batches)
      : case_(c),
        batches_(batches),
        backend_(kernels::make_backend({.threads = 1})),
        routes_(*backend_),
        whole_(c.config, c.dtype, c.B, c.T, 1, c.seed, {}, &routes_) {
    whole_.set_scalars({.inv_valid_tokens = 1.0 / static_cast<double>(batches.valid_targets()),
                        .inv_tokens = 1.0 / static_cast<double>(std::ssize(batches.all()) * c.B * c.T)});
    fill_buffers(whole_.ctx(), whole_.store());
  }

  /// Sums of a forward pass; with dropout and main gradients when training.
  LossStats run(int64_t step, bool gradients, bool dropout) {
    StepScalars scalars = whole_.scalars();
    scalars.philox_step = step;
    whole_.set_scalars(scalars);
    Ctx ctx = whole_.ctx();
    ctx.recompute = case_.recompute;
    ctx.dropout = {.enabled = dropout, .seed = case_.seed};
    const Tensor stats = ctx.make_struct(LossStats{});
    whole_.store().begin_step();
    if (gradients) whole_.store().expert_counts().begin_step(ctx);
    for (const auto& batch : batches_.all()) {
      Tape tape(whole_.backend(), ctx.stream);
      Ctx c = ctx;
      if (gradients) c.tape = &tape;
      c.dropout.first_sample = batch.first_sample;
      c.dropout.sequence_length = case_.T;
      const model::Stage& stage = whole_.stage();
      stage.loss(c, stage.blocks(c, stage.embed(c, batch.view), batch.view), batch.view, stats.mut_view());
      if (gradients) tape.backward();
    }
    return ctx.read_struct<LossStats>(stats);
  }

  void update(int64_t step, double clip_scale) {
    if (!optimizer_)
      optimizer_ =
          optim::make_optimizer(whole_.ctx(), whole_.store(), case_.optimizer, nn::FlatRanges::whole(whole_.store()));
    StepScalars s = whole_.scalars();
    s.lr = case_.lr;
    optimizer_->set_scalars(step, s);
    whole_.set_scalars(s);
    const Tensor clip = whole_.ctx().make_struct(ClipState{.clip_scale = clip_scale});
    optimizer_->step(whole_.ctx(), clip.view());
    whole_.store().expert_counts().update(whole_.ctx(), clip.view());
  }
  /// Which experts the routers choose: micro-batch after micro-batch, layer after layer.
  RoutedBackend& routes() { return routes_; }
  /// The choices of each expert of the last run with gradients.
  std::vector<double> expert_counts() const {
    const Tensor& counts = whole_.store().expert_counts().values();
    return counts ? whole_.host(counts) : std::vector<double>{};
  }
  Tensors buffers() const {
    Tensors all;
    for (const auto& buffer : whole_.store().buffers()) all[buffer->tensor.name] = whole_.host(buffer->values);
    return all;
  }

  Tensors values() const { return all_of(whole_.store().values()); }
  void set_values(const Tensors& values) {
    for (const auto& [name, of_tensor] : values) whole_.set(name, of_tensor);
  }
  Tensors gradients() const { return all_of(whole_.store().grads()); }
  /// Squares of 4096 elements of a tensor at a time, as the contract has it: the same bits on a pipeline.
  double gradient_norm() {
    const nn::ParameterStore& store = whole_.store();
    const auto ranges = nn::sharded_ranges(store, nn::FlatRanges::whole(store));
    std::vector<SquaresSegment> segments;
    for (const nn::ShardedRange& range : ranges)
      segments.push_back(
          {.begin = range.flat_begin, .size = range.size, .slot = static_cast<int64_t>(segments.size())});
    const Ctx& ctx = whole_.ctx();
    const Tensor sums = ctx.empty(DType::kFloat64, {static_cast<int64_t>(segments.size())});
    optim::SquaresTable(ctx, segments).sum(ctx, store.grads(), sums);
    std::vector<double> host(segments.size());
    ctx.backend.read(sums.view(), host.data(), ctx.stream);
    return std::sqrt(std::accumulate(host.begin(), host.end(), 0.0));
  }

 private:
  Tensors all_of(const Tensor& buffer) const {
    Tensors all;
    for (const auto& ref : whole_.store().sharded_tensors())
      all[ref.tensor->name] = whole_.host(nn::ParameterStore::of(buffer, ref));
    return all;
  }

  const LayoutCase& case_;
  const MicroBatches& batches_;
  std::unique_ptr<Backend> backend_;
  RoutedBackend routes_;
  TinyModel whole_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

/// What one rank computes.
struct Numbers {
  LossStats first;                    ///< of the step kStep
  double norm = 0;                    ///< of its gradients
  Tensors gradients;                  ///< of that step
  std::vector<double> expert_counts;  ///< of that step: the choices of each expert
  Tensors updated, buffers;           ///< the weights and buffers after its update
  LossStats after;                    ///< of the updated weights, without dropout
  Tensors gradients_after;
  std::vector<LossStats> further;  ///< of each further step
  /// Of the first step, behind its update, and of each further step.
  std::vector<RoutedBackend::Choices> choices;
  double least_gap = 0;  ///< RoutedBackend::least_gap of all of them
};

Numbers numbers_of_one_rank(const LayoutCase& c, const MicroBatches& batches);

}  // namespace ashlar::testing
