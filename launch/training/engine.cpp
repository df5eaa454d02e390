#include "launch/training/engine.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "launch/training/layout.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"
#include "parallel/pipeline/executor.h"

namespace ashlar::training {

namespace {

constexpr int64_t kNumLosses = 2;      // loss and z-loss: if one is not finite, the update is skipped
constexpr int64_t kReportsAtOnce = 2;  // reports of the current and of the previous step

/// The first bytes of a report in pinned memory. The fp64 values of the layers' metrics and the counts of experts
/// follow.
struct PinnedReport {
  LossStats losses;
  ClipState clip;
};

constexpr AxisSet kCountAxes = kReplicaAxes | Axis::kPipeline;  // over which counts of experts are added

double divisor_of(const StepCounts& counts) { return static_cast<double>(std::max<int64_t>(counts.valid_targets, 1)); }

}  // namespace

Engine::Engine(Backend& backend, Stream& stream, mesh::Mesh& mesh, const EngineOptions& options)
    : options_(options),
      mesh_(mesh),
      ctx_{.backend = backend, .stream = stream, .dtype = options.dtype, .recompute = options.recompute, .scalars = {}},
      device_scalars_(ctx_.make_struct(scalars_)),
      clip_(ctx_.make_struct(ClipState{})),
      stats_(ctx_.make_struct(LossStats{})),
      tp_{.group = &mesh.group(Axis::kTensor),
          .expert_group = mesh.shape()[Axis::kExpert] > 1 ? &mesh.group(Axis::kExpert) : nullptr,
          .sequence_parallel = options.sequence_parallel},
      schedules_(mesh.at()[Axis::kPipeline]) {
  ctx_.scalars = device_scalars_.view();
  const int64_t stages = mesh.shape()[Axis::kPipeline];
  const pipeline::Partition partition = partition_of(
      options_.model,
      {.sequence_length = options_.sequence_length, .stages = stages, .virtual_stages = options_.virtual_stages});
  for (int64_t c = 0; c < options_.virtual_stages; ++c) {
    const model::StageRange& range = partition.chunks[pipeline::model_chunk(mesh.at()[Axis::kPipeline], c, stages)];
    chunks_.push_back(std::make_unique<model::Stage>(store_, options_.model, range, tp_));
  }
  mesh.group(Axis::kPipeline);  // creates the communicator on all ranks before any of them sends
  if (options_.optimizer) {
    shared_.emplace(store_, mesh);
    if (options_.declare_sums) options_.declare_sums(store_.sums());
    sums_.emplace(store_.sums(), mesh);
  }
  comm::try_on_all_ranks(mesh.control(), [&] {  // out of memory is most likely here, on some ranks or on all
    store_.allocate(ctx_, options_.optimizer.has_value());
    if (!options_.optimizer) return;
    plan_ = zero::make_plan(
        store_, {.mesh = mesh.shape(),
                 .bucket_elems = options_.bucket_elems,
                 .shard_unit = options_.shard_unit.value_or(optim::rule_of(options_.optimizer->kind).shard_unit)});
    optimizer_ = optim::make_optimizer(ctx_, store_, *options_.optimizer, plan_.owned_by(mesh.shape(), mesh.at()));
  });
  if (options_.optimizer) {
    replicas_.emplace(plan_, store_, mesh, stream);
    norms_.emplace(ctx_, store_, optimizer_->ranges(), mesh);
    const auto n = static_cast<int64_t>(norms_->names().size());
    squares_ = ctx_.empty(DType::kFloat64, {n + kNumLosses}, MemoryKind::kWorkspace);
    kept_ = ctx_.empty(DType::kFloat64, {n}, MemoryKind::kWorkspace);
    if (store_.expert_counts().values()) mesh.group(kCountAxes);
    const int64_t numbers = std::ssize(store_.sums().declared()) + store_.expert_counts().size();
    const auto report_bytes = static_cast<int64_t>(sizeof(PinnedReport)) + 8 * numbers;
    for (int i = 0; i < kReportsAtOnce; ++i) {
      reports_.push_back(
          {.pinned = ctx_.empty(DType::kUInt8, {report_bytes}, MemoryKind::kPinned), .arrived = backend.make_event()});
    }
  }
  for (const auto& chunk : chunks_) chunk->make_tables(ctx_, options_.sequence_length);
}

void Engine::initialize() {
  if (!optimizer_) return store_.initialize(ctx_, options_.seed, store_.values());
  optimizer_->initialize(ctx_, options_.seed);
  start_param_sync();
}

void Engine::start_param_sync() { replicas_->start_param_sync(); }

void Engine::wait_param_sync() {
  if (replicas_) replicas_->wait_param_sync();
}

void Engine::run(pipeline::PipelineSchedule kind, std::span<const pipeline::MicroBatch> batches,
                 const AtHead& at_head) {
  const pipeline::ScheduleSpec spec{.kind = kind,
                                    .stages = mesh_.shape()[Axis::kPipeline],
                                    .micro_batches = static_cast<int64_t>(batches.size()),
                                    .virtual_stages = options_.virtual_stages};
  const auto alive = [&] {
    if (options_.after_node) options_.after_node();
  };
  pipeline::RunnerHooks hooks{.after_node = alive, .progress = alive, .at_head = at_head};
  const bool training = kind != pipeline::PipelineSchedule::kForwardOnly;
  if (training) {
    replicas_->begin_step(spec.micro_batches);
    hooks.after_node = [&] {
      alive();
      replicas_->poll();
    };
    hooks.progress = [&] {
      alive();
      mesh_.all().progress();  // advances the all-gather of parameters, which overlaps forward
    };
    if (options_.after_block)
      hooks.after_block = [&](int64_t layers, const Tensor& rows) { options_.after_block(ctx_, layers, rows); };
  }
  if (std::exchange(measures_residual_, false)) {
    residual_.emplace(ctx_, ResidualSquares::Shape{.layers = options_.model.n_layers,
                                                   .rows = tp_.local_rows(batches.front().view.rows()),
                                                   .d_model = options_.model.d_model,
                                                   .micro_batches = spec.micro_batches});
    const bool counted = options_.sequence_parallel || mesh_.at()[Axis::kTensor] == 0;
    hooks.after_block = [this, counted, other = std::move(hooks.after_block)](int64_t layers, const Tensor& rows) {
      if (other) other(layers, rows);
      if (counted) residual_->see(ctx_, layers, rows);
    };
  }
  Ctx ctx = ctx_;
  ctx.dropout.seed = options_.seed;
  pipeline::ChunkRunner runner(ctx, chunks_, batches, stats_.mut_view(), std::move(hooks));
  pipeline::execute(ctx,
                    {.spec = spec,
                     .actions = schedules_.of(spec),
                     .stages = mesh_.group(Axis::kPipeline),
                     .runner = runner,
                     .boundary = {{.name = "residual stream",
                                   .shape = {tp_.local_rows(batches.front().view.rows()), options_.model.d_model}}},
                     .before = options_.before_action,
                     .after = training ? options_.after_action : nullptr});
}

StepCounts Engine::own_counts(std::span<const pipeline::MicroBatch> micro_batches) const {
  StepCounts counts;
  for (const pipeline::MicroBatch& batch : micro_batches) {
    if (!mesh_.first_stage() || mesh_.at()[Axis::kTensor] != 0) continue;
    counts.tokens += batch.view.rows();
    counts.valid_targets += batch.valid_targets;
  }
  return counts;
}

void Engine::backward(std::span<const pipeline::MicroBatch> micro_batches, int64_t step, const StepCounts& counts) {
  // 1. All losses of the step are divided by the number of valid targets of the step, which is known before the first
  // backward. A mean of the means of micro-batches would weight their tokens unequally.
  scalars_.inv_valid_tokens = 1.0 / divisor_of(counts);
  scalars_.inv_tokens = 1.0 / static_cast<double>(std::max<int64_t>(counts.tokens, 1));
  scalars_.philox_step = static_cast<uint64_t>(step);
  ctx_.set_struct(scalars_, device_scalars_);

  // 2. Sums the gradients over micro-batches, then over replicas, then over ranks with replicated parameters.
  ctx_.set_struct(LossStats{}, stats_);
  store_.sums().begin_step(ctx_);
  store_.expert_counts().begin_step(ctx_);
  run(options_.schedule, micro_batches);
  replicas_->finish();
  shared_->sum_gradients(ctx_, optimizer_->ranges());
  if (const Tensor& choices = store_.expert_counts().values()) {
    mesh_.group(kCountAxes)
        .all_reduce({.in = choices.view(), .out = choices.mut_view(), .op = comm::ReduceOp::kSum}, ctx_.stream)
        .wait(ctx_.stream);
  }
}

void Engine::reduce_norm() {
  const auto n = static_cast<int64_t>(norms_->names().size());
  const Tensor losses = squares_.flat_range(n, kNumLosses);
  if (tells_losses()) {
    static_assert(offsetof(LossStats, loss) == 0 && offsetof(LossStats, z_loss) == sizeof(double));
    const ConstView sums{stats_.view().data, DType::kFloat64, 1, kNumLosses, kNumLosses};
    ctx_.backend.copy({.src = sums, .dst = losses.mut_view()}, ctx_.stream);
  } else {
    ctx_.backend.fill({.dst = losses.mut_view(), .value = 0}, ctx_.stream);
  }
  norms_->sum(ctx_, {.data = store_.grads()}, squares_);
  ctx_.backend.clip_gradients({.squares = squares_.flat_range(0, n).view(),
                               .also_finite = losses.view(),
                               .state = clip_.mut_view(),
                               .kept = kept_.mut_view(),
                               .max_norm = options_.clip},
                              ctx_.stream);
  ASHLAR_CHECK(queued_reports_ - taken_reports_ < kReportsAtOnce,
               "expected at most one unread report before the next one is queued");
  const Report& report = reports_[static_cast<size_t>(queued_reports_++ % kReportsAtOnce)];
  auto* const host = static_cast<std::byte*>(report.pinned.mut_view().data);
  ctx_.backend.copy_to_host(stats_.view(), host + offsetof(PinnedReport, losses), ctx_.stream);
  ctx_.backend.copy_to_host(clip_.view(), host + offsetof(PinnedReport, clip), ctx_.stream);
  if (const Tensor& sums = store_.sums().values())
    ctx_.backend.copy_to_host(sums.view(), host + sizeof(PinnedReport), ctx_.stream);
  if (const Tensor& choices = store_.expert_counts().values())
    ctx_.backend.copy_to_host(choices.view(), host + sizeof(PinnedReport) + 8 * store_.sums().declared().size(),
                              ctx_.stream);
  ctx_.stream.record(*report.arrived);
}

StepReport Engine::take_report() {
  ASHLAR_CHECK(taken_reports_ < queued_reports_, "no report is queued");
  const Report& report = reports_[static_cast<size_t>(taken_reports_++ % kReportsAtOnce)];
  report.arrived->synchronize();
  PinnedReport read;
  const auto* const host = static_cast<const std::byte*>(report.pinned.view().data);
  std::memcpy(&read, host, sizeof(read));
  const auto* next = host + sizeof(read);
  const auto numbers = [&](size_t count) {
    std::vector<double> values(count);
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(values));
    std::ranges::copy_n(std::exchange(next, next + bytes.size()), std::ssize(bytes), bytes.begin());
    return values;
  };
  const std::vector<double> own = numbers(store_.sums().declared().size());
  return {.losses = tells_losses() ? read.losses : LossStats{},
          .layers = sums_->of_rank(own),
          .clip = read.clip,
          .expert_counts = numbers(static_cast<size_t>(store_.expert_counts().size()))};
}

StepResult Engine::result_of(const StepReport& report, const StepMessage& all, const StepCounts& counts) const {
  const double valid = divisor_of(counts);
  const LossStats& losses = all.losses;
  return {.loss = losses.loss / valid,
          .z_loss = losses.z_loss / valid,
          .mean_log_z = losses.log_z / valid,
          .max_log_z = losses.max_log_z,
          .max_logit = losses.max_logit,
          .grad_norm = report.clip.norm,
          .clip_scale = report.clip.clip_scale,
          .tokens = counts.tokens,
          .valid_targets = counts.valid_targets,
          .layers = sums_->metrics(all.layers, counts),
          .expert_counts = report.expert_counts};
}

StepResult Engine::forward_backward(std::span<const pipeline::MicroBatch> micro_batches, int64_t step) {
  const StepCounts counts = StepExchange(mesh_.control(), {.next = own_counts(micro_batches)}).wait().next;
  backward(micro_batches, step, counts);
  reduce_norm();
  const StepReport report = take_report();
  const StepMessage mine{.losses = report.losses, .layers = report.layers};
  return result_of(report, StepExchange(mesh_.control(), mine).wait(), counts);
}

std::vector<double> Engine::gradient_squares() const {
  std::vector<double> squares(norms_->names().size());
  ctx_.backend.read(kept_.view(), squares.data(), ctx_.stream);
  return squares;
}

std::vector<double> Engine::sums_of(const nn::FlatTensor& buffer) {
  wait_param_sync();
  return norms_->sums_of(ctx_, buffer);
}

std::string Engine::first_non_finite(std::span<const double> sums) const {
  const int64_t at = optim::first_non_finite(sums);
  return at < 0 ? "" : norms_->names()[static_cast<size_t>(at)];
}

void Engine::check_finite(const StepResult& result, int64_t step) {
  if (std::isfinite(result.loss) && std::isfinite(result.z_loss) && std::isfinite(result.grad_norm)) return;
  const std::string name = first_non_finite(gradient_squares());
  std::string problem;
  if (!std::isfinite(result.loss) || !std::isfinite(result.z_loss)) {
    const bool z = std::isfinite(result.loss);
    problem = str_cat(z ? "the z-loss is " : "the loss is ", z ? result.z_loss : result.loss,
                      name.empty() ? "" : ", first non-finite gradient ", name, ";");
  } else {
    problem = str_cat("the gradient of ", name.empty() ? "all tensors together" : name, " is not finite (loss ",
                      result.loss, ");");
  }
  // The previous update may have made a weight non-finite while every gradient was still finite.
  const std::string weights = first_non_finite(sums_of(optimizer_->master()));
  const std::string state = weights.empty()
                                ? " the weights were not updated"
                                : str_cat(" the weights of ", weights, " are not finite since an earlier update");
  throw comm::AllRanksError(ExitCode::kNonFinite, "train",
                            str_cat("step ", step, ": ", problem, state,
                                    "; nothing was saved; lower optimizer.lr or resume from an earlier checkpoint"));
}

void Engine::check_state(int64_t step) {
  const auto check = [&](std::string_view what, const nn::FlatTensor& buffer) {
    const std::string name = first_non_finite(sums_of(buffer));
    if (name.empty()) return;
    throw comm::AllRanksError(ExitCode::kNonFinite, "train",
                              str_cat("step ", step, ": the ", what, " of ", name,
                                      " are not finite after the update; nothing was saved; lower optimizer.lr or "
                                      "resume from an earlier checkpoint"));
  };
  check("weights", optimizer_->master());
  for (const auto& [name, tensor] : optimizer_->state()) check(name.description, tensor);
}

void Engine::update(int64_t step, double lr) {
  ASHLAR_CHECK(optimizer_ != nullptr, "an engine without optimizer cannot update");
  scalars_.lr = lr;
  scalars_.philox_step = static_cast<uint64_t>(step);
  optimizer_->set_scalars(step, scalars_);
  ctx_.set_struct(scalars_, device_scalars_);
  wait_param_sync();
  if (state_read_ != nullptr) ctx_.stream.wait_for(*std::exchange(state_read_, nullptr));
  optimizer_->step(ctx_, clip_.view());
  store_.expert_counts().update(ctx_, clip_.view());
  start_param_sync();
}

void Engine::update_after(Event* state_read) {
  if (state_read != nullptr) state_read_ = state_read;
}

Engine::Padded Engine::padded(std::span<const pipeline::MicroBatch> micro_batches) {
  Padded all{.batches = {micro_batches.begin(), micro_batches.end()}, .memory = {}};
  if (mesh_.shape()[Axis::kExpert] == 1) return all;
  const int64_t most = comm::max_of(mesh_.control(), std::ssize(all.batches));
  if (std::ssize(all.batches) == most) return all;
  // One sequence of a token on each tensor rank, unless the stages exchange another number of rows in this call.
  model::BatchView view{.B = tp_.size(), .T = 1};
  if (!all.batches.empty()) view = all.batches.front().view;
  const auto put = [&](int32_t value) {
    const std::vector<int32_t> host(static_cast<size_t>(view.rows()), value);
    all.memory.push_back(ctx_.empty(DType::kInt32, {view.rows()}));
    ctx_.backend.write(host.data(), all.memory.back().mut_view(), ctx_.stream);
    return all.memory.back().view();
  };
  view.ids = view.positions = put(0);
  view.targets = put(-1);
  view.doc_start = {};
  while (std::ssize(all.batches) < most) all.batches.push_back({.view = view});
  return all;
}

void Engine::evaluate(std::span<const pipeline::MicroBatch> micro_batches, LossStats& stats) {
  const Padded all = padded(micro_batches);
  if (all.batches.empty()) return;
  ctx_.set_struct(stats, stats_);
  run(pipeline::PipelineSchedule::kForwardOnly, all.batches);
  stats = ctx_.read_struct<LossStats>(stats_);
}

void Engine::score(std::span<const pipeline::MicroBatch> micro_batches, const AtHead& at_head) {
  const Padded all = padded(micro_batches);
  if (all.batches.empty()) return;
  run(pipeline::PipelineSchedule::kForwardOnly, all.batches,
      [&](const Ctx& ctx, const model::Stage& stage, int64_t i, const Tensor& rows) {
        if (i < std::ssize(micro_batches)) at_head(ctx, stage, i, rows);
      });
}

LossStats Engine::total(const LossStats& stats) const {
  return StepExchange(mesh_.control(), {.losses = tells_losses() ? stats : LossStats{}}).wait().losses;
}

std::vector<double> Engine::residual_rms() {
  ASHLAR_CHECK(residual_, "measure_residual() was not called before the last run");
  const ResidualSquares::Shape& shape = residual_->shape();
  std::vector<double> rms = residual_->sums(ctx_);
  comm::sum_all(mesh_.control(), rms);
  // The ranks of a tensor group have the same rows, or parts of them (sequence parallel).
  const int64_t parts = options_.sequence_parallel ? mesh_.shape()[Axis::kTensor] : 1;
  const auto elements =
      static_cast<double>(shape.micro_batches * shape.rows * parts * shape.d_model * mesh_.size(kSampleAxes));
  for (double& value : rms) value = std::sqrt(value / elements);
  residual_.reset();
  return rms;
}

std::vector<std::pair<double, double>> Engine::selection_bias_ranges() {
  const model::ModelConfig& model = options_.model;
  if (!model.moe.selection_bias || model.moe.experts == 0) return {};
  constexpr double kLeast = -std::numeric_limits<double>::infinity();
  std::vector<double> extremes(static_cast<size_t>(2 * model.expert_layers()), kLeast);  // -smallest, largest
  const Tensor wide = ctx_.empty(DType::kFloat64, {model.moe.experts}, MemoryKind::kWorkspace);
  std::vector<double> biases(static_cast<size_t>(model.moe.experts));
  for (const nn::ExpertCounts::Layer& layer : store_.expert_counts().layers()) {
    ctx_.backend.copy({.src = layer.selection_bias->values.view(), .dst = wide.mut_view()}, ctx_.stream);
    ctx_.backend.read(wide.view(), biases.data(), ctx_.stream);
    const auto [least, most] = std::ranges::minmax(biases);
    extremes[static_cast<size_t>(2 * layer.row)] = -least;
    extremes[static_cast<size_t>(2 * layer.row + 1)] = most;
  }
  comm::max_all(mesh_.control(), extremes);
  std::vector<std::pair<double, double>> ranges;
  for (size_t i = 0; i < extremes.size(); i += 2) ranges.emplace_back(-extremes[i], extremes[i + 1]);
  return ranges;
}

}  // namespace ashlar::training
