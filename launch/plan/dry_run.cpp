#include "launch/plan/dry_run.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/make_backend.h"
#include "launch/plan/dry_comm.h"
#include "launch/training/device_batch.h"
#include "launch/training/engine.h"
#include "launch/training/engine_options.h"
#include "launch/training/evaluation.h"
#include "launch/training/layout.h"
#include "launch/training/step_batches.h"
#include "parallel/checkpoint/snapshot.h"
#include "parallel/model/expert_layout.h"
#include "parallel/zero/shard_plan.h"

namespace ashlar::plan {

namespace {

constexpr int64_t kSteps = 2;  // from the second step on, gradients are reduced during backward

/// Number of micro-batches after which another one changes nothing but the memory of the batches themselves.
int64_t enough_micro_batches(const config::MeshSection& mesh, int64_t all) {
  const int64_t stages = mesh.pipeline;
  if (mesh.schedule == pipeline::PipelineSchedule::kGpipe) return all;  // which keeps all of them
  if (mesh.virtual_stages == 1) return std::min(all, 2 * stages + 2);
  // Interleaved: the groups of micro-batches are then as large as those of all.
  return std::min(all, std::max<int64_t>(4, all % stages) * stages + all % stages);
}

data::Batch empty_batch(const config::RunConfig& c) {
  const int64_t B = c.train.micro_batch, T = c.train.sequence_length;
  data::Batch batch;
  data::resize_batch(batch, B, T, {.mask = c.data.document_mask, .restart_positions = c.data.restart_positions});
  std::ranges::fill(batch.targets, data::kIgnoreIndex);
  batch.order.resize(batch.ids.size());
  for (int64_t i = 0; i < B * T; ++i) batch.positions[static_cast<size_t>(i)] = static_cast<int32_t>(i % T);
  return batch;
}

kernels::DryRunConfig backend_config(const DryRun& args) {
  const config::RunConfig& c = args.run;
  const model::MoeConfig& moe = c.model.moe;
  kernels::DryRunConfig config{
      .device = std::string(name_of(args.device)), .threads = static_cast<int>(c.run.threads), .experts = moe.experts};
  if (args.load <= 1 || c.mesh.expert == 1) return config;
  const bool whole = moe.tensor == model::ExpertCut::kExperts;
  const int64_t ranks = c.mesh.expert * (whole ? c.mesh.tensor : 1);
  const int64_t at = (whole ? args.at[Axis::kTensor] * c.mesh.expert : 0) + args.at[Axis::kExpert];
  const comm::Range own = model::divided_experts(moe.experts, ranks)[static_cast<size_t>(at)];
  config.loaded_begin = own.begin;
  config.loaded_end = own.end;
  config.load = args.load;
  return config;
}

/// One rank of a run, without memory.
class DryRank {
 public:
  explicit DryRank(const DryRun& args);

  void steps();
  void evaluate();
  RankMemory memory() const;

 private:
  training::EngineOptions options();
  void upload(std::vector<training::DeviceBatch>& batches);
  int64_t used() const { return backend_->allocator(MemoryKind::kActivations).used_bytes(); }

  const config::RunConfig& run_;
  const mesh::MeshShape shape_;
  RankMemory result_;
  const data::Batch batch_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  DryComm world_;
  mesh::Mesh mesh_;
  std::unique_ptr<training::Engine> engine_;
  std::vector<training::DeviceBatch> current_, next_;
  bool training_ = false;                    // a forward and backward is running
  int64_t before_step_ = 0, in_flight_ = 0;  // bytes of activations before it; micro-batches in flight
};

DryRank::DryRank(const DryRun& args)
    : run_(args.run),
      shape_(training::shape_of(args.run.mesh)),
      batch_(empty_batch(args.run)),
      backend_(kernels::make_dry_backend(backend_config(args))),
      stream_(backend_->make_stream()),
      world_(shape_, args.at),
      mesh_(world_, shape_),
      engine_(std::make_unique<training::Engine>(*backend_, *stream_, mesh_, options())) {
  result_.rank = world_.rank();
  result_.at = args.at;
  engine_->initialize();
  const int64_t every = run_.checkpoint.every;
  if (every > 0 && every <= run_.train.steps)
    result_.snapshot = checkpoint::Snapshot::bytes_of(
        {.ctx = engine_->ctx(), .store = engine_->store(), .optimizer = engine_->optimizer(), .rank = world_.rank()});
}

training::EngineOptions DryRank::options() {
  training::EngineOptions options = training::engine_options(run_);
  options.before_action = [this](const pipeline::Action& action) {
    if (!training_) return;
    result_.kept = std::max(result_.kept, used() - before_step_);
    if (action.kind == pipeline::ActionKind::kForward) result_.in_flight = std::max(result_.in_flight, ++in_flight_);
  };
  options.after_action = [this](const pipeline::Action& action) {
    using enum pipeline::ActionKind;
    if (action.kind == kBackward || action.kind == kBackwardWeight) --in_flight_;
  };
  return options;
}

void DryRank::upload(std::vector<training::DeviceBatch>& batches) {
  const int64_t before = used();
  for (training::DeviceBatch& batch : batches) batch.upload(engine_->ctx(), batch_);
  result_.batches += used() - before;
}

void DryRank::steps() {
  const auto run = static_cast<size_t>(enough_micro_batches(run_.mesh, training::num_micro_batches(run_)));
  current_ = std::vector<training::DeviceBatch>(run);
  next_ = std::vector<training::DeviceBatch>(run);
  upload(next_);
  for (int64_t step = 0; step < kSteps; ++step) {
    std::swap(current_, next_);
    const std::vector<pipeline::MicroBatch> batches = training::micro_batches(current_);
    before_step_ = used();
    training_ = true;
    if (run_.log.stats_every > 0) engine_->measure_residual();
    engine_->backward(batches, step, {});
    training_ = false;
    upload(next_);
    engine_->reduce_norm();
    engine_->update(step, run_.optimizer.lr);
    engine_->take_report();
    if (run_.log.stats_every > 0) engine_->residual_rms();
  }
  engine_->sums_of(engine_->optimizer()->master());
}

void DryRank::evaluate() {
  std::vector<training::DeviceBatch> slots(static_cast<size_t>(training::batches_per_round(mesh_)));
  for (training::DeviceBatch& slot : slots) slot.upload(engine_->ctx(), batch_);
  LossStats stats;
  engine_->evaluate(training::micro_batches(slots), stats);
  // The last batch of a validation part is usually shorter. Its memory is taken before that of the longer one is
  // given back.
  config::RunConfig shorter = run_;
  shorter.train.sequence_length = std::max<int64_t>(1, run_.train.sequence_length - 1);
  slots.front().upload(engine_->ctx(), empty_batch(shorter));
}

RankMemory DryRank::memory() const {
  RankMemory memory = result_;
  for (size_t kind = 0; kind < memory.bytes.size(); ++kind)
    memory.bytes[kind] = backend_->allocator(static_cast<MemoryKind>(kind)).high_water_bytes();
  // Batches that were left out.
  const int64_t each = memory.batches / (2 * std::ssize(current_));
  const int64_t more = (training::num_micro_batches(run_) - std::ssize(current_)) * 2 * each;
  memory.batches += more;
  memory.bytes[static_cast<size_t>(MemoryKind::kActivations)] += more;
  memory.bytes[static_cast<size_t>(MemoryKind::kPinned)] += more;
  return memory;
}

/// Returns the coordinates of the rank with the largest shard of the optimizer state among those that hold the
/// parameters of the rank at `at`; with `fixed_expert`, that have its expert coordinate.
mesh::Coordinates with_largest_shard(const config::RunConfig& c, const mesh::Coordinates& at, bool fixed_expert) {
  const training::EngineOptions options = training::engine_options(c);
  const mesh::MeshShape shape = training::shape_of(c.mesh);
  DryComm world(shape, at);
  mesh::Mesh mesh(world, shape);
  const tensor::TensorParallel tp{.group = &mesh.group(Axis::kTensor),
                                  .expert_group = c.mesh.expert > 1 ? &mesh.group(Axis::kExpert) : nullptr,
                                  .sequence_parallel = c.mesh.sequence_parallel};
  const pipeline::Partition partition = training::partition_of(
      c.model,
      {.sequence_length = c.train.sequence_length, .stages = c.mesh.pipeline, .virtual_stages = c.mesh.virtual_stages});
  nn::ParameterStore store;
  std::vector<std::unique_ptr<model::Stage>> chunks;
  for (int64_t chunk = 0; chunk < c.mesh.virtual_stages; ++chunk) {
    const int64_t index = pipeline::model_chunk(at[Axis::kPipeline], chunk, c.mesh.pipeline);
    chunks.push_back(std::make_unique<model::Stage>(store, c.model, partition.chunks[static_cast<size_t>(index)], tp));
  }
  store.arrange();
  const zero::ShardPlan plan =
      zero::make_plan(store, {.mesh = shape,
                              .bucket_elems = options.bucket_elems,
                              .shard_unit = optim::rule_of(options.optimizer->kind).shard_unit});
  mesh::Coordinates candidate = at, largest = at;
  int64_t most = -1;
  for (int64_t replica = 0; replica < shape[Axis::kReplica]; ++replica) {
    for (int64_t expert = 0; expert < shape[Axis::kExpert]; ++expert) {
      if (fixed_expert && expert != at[Axis::kExpert]) continue;
      candidate[Axis::kReplica] = replica;
      candidate[Axis::kExpert] = expert;
      const int64_t elements = plan.owned_by(shape, candidate).packed_size();
      if (elements <= most) continue;
      most = elements;
      largest = candidate;
    }
  }
  return largest;
}

}  // namespace

int64_t RankMemory::device_bytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) - of(MemoryKind::kPinned);
}

RankMemory dry_run(const DryRun& args) {
  DryRank rank(args);
  rank.steps();
  rank.evaluate();
  return rank.memory();
}

RankMemory worst_of_stage(const config::RunConfig& c, DeviceKind device, int64_t stage, double load) {
  DryRun args{.run = c, .device = device, .at = {{Axis::kPipeline, stage}}, .load = load};
  // Of experts that do not divide evenly, the last ranks hold more (model::divided_experts).
  const bool whole = c.model.moe.experts > 0 && c.model.moe.tensor == model::ExpertCut::kExperts;
  const int64_t divided_over = c.mesh.expert * (whole ? c.mesh.tensor : 1);
  const bool uneven = c.model.moe.experts % divided_over != 0;
  if (uneven) {
    args.at[Axis::kExpert] = c.mesh.expert - 1;
    if (whole) args.at[Axis::kTensor] = c.mesh.tensor - 1;
  }
  args.at = with_largest_shard(c, args.at, uneven);
  return dry_run(args);
}

}  // namespace ashlar::plan
