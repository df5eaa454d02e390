#include "tests/layouts/one_rank.h"

#include <gtest/gtest.h>
#include <numeric>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "core/base/philox.h"
#include "core/optim/grad_clip.h"
#include "kernels/make_backend.h"
#include "launch/training/engine.h"
#include "parallel/comm/host.h"
#include "parallel/comm/staged_comm.h"
#include "parallel/model/position_tables.h"
#include "tests/gpu_emulator/backend/emulated_backend.h"
#include "tests/layouts/compare.h"
#include "tests/parallel/model_fixture.h"
#include "tests/stand_ins/over_nccl.h"

namespace ashlar::testing {
namespace {

constexpr int64_t kStep = 3;

/// The whole model on this rank, and the micro-batches of all replicas.
class OneRank {
 public:
  explicit OneRank(const LayoutCase& c) : case_(c), whole_(c.config, c.dtype, c.B, c.T, 1, c.seed) {
    for (int64_t m = 0; m < c.mesh.size(kSampleAxes) * c.micro_batches; ++m) {
      sources_.push_back(std::make_unique<RandomTokens>(whole_.ctx(), c.config, c.B, c.T, 93 + c.seed + m));
      RandomTokens& source = *sources_.back();
      if (c.documents) source.doc_start() = documents(m);
      batches_.push_back(
          {.view = source.batch(), .first_sample = 40 + m * c.B, .valid_targets = source.valid_targets()});
      valid_targets_ += batches_.back().valid_targets;
    }
    whole_.set_scalars({.inv_valid_tokens = 1.0 / static_cast<double>(valid_targets_),
                        .inv_tokens = 1.0 / static_cast<double>(std::ssize(batches_) * c.B * c.T)});
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
    for (const auto& batch : batches_) {
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
  }

  std::map<std::string, std::vector<double>> values() const { return all_of(whole_.store().values()); }
  std::map<std::string, std::vector<double>> gradients() const { return all_of(whole_.store().grads()); }
  /// Squares of 4096 elements of a tensor at a time, as the contract has it: the same bits on a pipeline.
  double gradient_norm() {
    const auto ranges = nn::sharded_ranges(store(), nn::FlatRanges::whole(store()));
    std::vector<SquaresSegment> segments;
    for (const nn::ShardedRange& range : ranges)
      segments.push_back(
          {.begin = range.flat_begin, .size = range.size, .slot = static_cast<int64_t>(segments.size())});
    const Ctx& ctx = whole_.ctx();
    const Tensor sums = ctx.empty(DType::kFloat64, {static_cast<int64_t>(segments.size())});
    optim::SquaresTable(ctx, segments).sum(ctx, store().grads(), sums);
    std::vector<double> host(segments.size());
    ctx.backend.read(sums.view(), host.data(), ctx.stream);
    return std::sqrt(std::accumulate(host.begin(), host.end(), 0.0));
  }
  std::span<const pipeline::MicroBatch> of_replica(int64_t index) const {
    return std::span(batches_).subspan(index * case_.micro_batches, case_.micro_batches);
  }
  const nn::ParameterStore& store() const { return whole_.store(); }
  int64_t valid_targets() const { return valid_targets_; }

 private:
  std::map<std::string, std::vector<double>> all_of(const Tensor& buffer) const {
    std::map<std::string, std::vector<double>> all;
    for (const auto& ref : whole_.store().sharded_tensors())
      all[ref.tensor->name] = whole_.host(nn::ParameterStore::of(buffer, ref));
    return all;
  }
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
  TinyModel whole_;
  std::vector<std::unique_ptr<RandomTokens>> sources_;
  std::vector<pipeline::MicroBatch> batches_;
  int64_t valid_targets_ = 0;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

std::vector<double> range_of(const std::vector<double>& global, const nn::ShardedRange& range) {
  const std::vector<double> part = slice_of(global, *range.ref->tensor);
  return {part.begin() + range.first, part.begin() + range.first + range.size};
}

/// What the first moment, or the mean that Lion keeps, takes of a first gradient.
double share_of_first(const optim::OptimizerOptions& o) {
  return o.kind == optim::OptimizerKind::kLion ? 1 - o.beta2 : 1 - o.beta1;
}

/// How far two first steps may lie apart whose gradients do. All state starts at zero, so a clipped gradient x moves a
/// weight by u(x), of AdamW a x / (s |x| + eps), of Lion a sign(x), which grows with x: over an interval it changes
/// most at an end.
class UpdateBound {
 public:
  UpdateBound(const LayoutCase& c, double clip_scale, double clip_error)
      : lion_(c.optimizer.kind == optim::OptimizerKind::kLion),
        a_(lion_ ? c.lr : c.lr * (1 - c.optimizer.beta1) / (1 - std::pow(c.optimizer.beta1, kStep + 1))),
        s_(std::sqrt((1 - c.optimizer.beta2) / (1 - std::pow(c.optimizer.beta2, kStep + 1)))),
        eps_(c.optimizer.eps),
        clip_scale_(clip_scale),
        clip_error_(clip_error),
        roundoff_(c.dtype == DType::kFloat64 ? 0x1p-53 : 0x1p-24),
        of_weight_(c.device == "emulated" && c.dtype == DType::kFloat64 ? 16 : 4) {}

  /// `weight` after the update; a gradient that may be off by `error`.
  double of(double weight, double gradient, double error) const {
    const double x = clip_scale_ * gradient;
    const double off = clip_scale_ * error + std::abs(x) * clip_error_;
    const double change = std::max(u(x + off) - u(x), u(x) - u(x - off));
    // A dozen roundings between gradient and update on either side, and those of the weight.
    return change + roundoff_ * (24 * (std::abs(u(x)) + change) + of_weight_ * std::abs(weight));
  }

 private:
  double u(double x) const {
    if (lion_) return x == 0 ? 0 : std::copysign(a_, x);
    return a_ * x / (s_ * std::abs(x) + eps_);
  }

  bool lion_;
  double a_, s_, eps_, clip_scale_, clip_error_, roundoff_;
  /// Two roundings on either side. The normal numbers that fp64 weights begin as have sqrt(log) and cos of the device,
  /// within 1 and 1.5 ulp (kernels/cuda/dev/math.h), or of the host, within 1 and 1, and two products: six ulp more.
  double of_weight_;
};

void expect_within(const std::string& name, const std::vector<double>& got, const std::vector<double>& expected,
                   const std::vector<double>& bounds) {
  ASSERT_EQ(got.size(), expected.size()) << name;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], bounds[i]) << name << ", element " << i << " of this rank's part";
}

/// Micro-batches in the memory of a device.
class OnDevice {
 public:
  OnDevice(Backend& backend, Stream& stream, std::span<const pipeline::MicroBatch> batches)
      : batches_(batches.begin(), batches.end()) {
    for (pipeline::MicroBatch& batch : batches_) {
      model::BatchView& v = batch.view;
      for (ConstView* view : {&v.ids, &v.targets, &v.positions, &v.doc_start, &v.order, &v.position_order}) {
        if (!*view) continue;
        memory_.push_back(
            Tensor::allocate(backend.allocator(MemoryKind::kActivations), view->dtype, Shape{view->size()}));
        backend.write(view->data, memory_.back().mut_view(), stream);
        view->data = memory_.back().view().data;
      }
    }
  }
  std::span<const pipeline::MicroBatch> batches() const { return batches_; }

 private:
  std::vector<pipeline::MicroBatch> batches_;
  std::vector<Tensor> memory_;
};

std::unique_ptr<Backend> make_backend(const LayoutCase& c) {
  if (c.device == "nccl windows")
    return std::make_unique<WindowedBackend>(kernels::make_backend({.threads = 1}), c.seed);
  if (c.device == "emulated") return std::make_unique<emulated::EmulatedBackend>(emulated::DeviceOptions{});
  if (c.device != "nccl") return kernels::make_backend({.device = c.device, .threads = 1});
  return std::make_unique<DeferredBackend>(kernels::make_backend({.threads = 1}), c.seed);
}

std::unique_ptr<comm::Communicator> make_device_comm(comm::Communicator& ranks, Backend& backend, const LayoutCase& c) {
  if (c.device == "nccl windows") {
    unsetenv("NCCL_WIN_ENABLE");  // of deterministic communicators before
    auto& device = dynamic_cast<WindowedBackend&>(backend);
    auto comm = make_nccl(ranks, device, {.deterministic = false, .setup_seconds = 30});
    constexpr MemoryKind kKinds[] = {MemoryKind::kParameters, MemoryKind::kGradients};
    device.set_memory_source(comm->memory_for_windows(), kKinds);
    return comm;
  }
  if (c.device != "nccl") return comm::make_device_comm(ranks, backend);
  return make_nccl(ranks, dynamic_cast<DeferredBackend&>(backend));
}

using Gradients = std::map<std::string, std::vector<double>>;

/// The size of what adds up to a gradient: its norm, but a key bias has a true gradient of zero. What is left of it is
/// rounding of the same sums over rows that make the gradient of the key weight.
double terms_of(const Gradients& gradients, const std::string& name) {
  const size_t end = name.rfind("attn.k.bias");
  const double norm = norm_of(gradients.at(name));
  return end == name.npos ? norm : std::max(norm, norm_of(gradients.at(name.substr(0, end) + "attn.k.weight")));
}

double norm_of_all(const Gradients& gradients) {
  double squares = 0;
  for (const auto& [name, values] : gradients) squares += norm_of(values) * norm_of(values);
  return std::sqrt(squares);
}

/// How far fp32 takes the gradients of one rank from those in fp64, as a share of the tensor's: what the model makes of
/// rounding. Norms over few numbers before the scores, through eight layers, make much of it.
double share_of_rounding(const LayoutCase& c) {
  LayoutCase reference = c;
  reference.dtype = DType::kFloat64;
  OneRank rounded(c), exact(reference);
  rounded.run(kStep, true, true);
  exact.run(kStep, true, true);
  const Gradients got = rounded.gradients(), gradients = exact.gradients();
  const double all = norm_of_all(gradients);
  double share = 0;
  for (const auto& [name, values] : gradients) {
    std::vector<double> error = got.at(name);
    for (size_t i = 0; i < error.size(); ++i) error[i] -= values[i];
    share = std::max(share, norm_of(error) / std::max(terms_of(gradients, name), least_size(name, all)));
  }
  return share;
}

/// Of gradients, as a share of the tensor's. Another device rounds elsewhere than the CPU does: each is away from the
/// true gradient by about as much, and the approximate functions of one may double its part.
double bound_of(comm::ControlPlane& ranks, const LayoutCase& c) {
  if (c.dtype == DType::kFloat64) return 1e-11;
  if (c.device != "emulated") return 2e-5;
  return std::max(2e-5, 3 * comm::max_of(ranks, ranks.rank() == 0 ? share_of_rounding(c) : 0.0));
}

/// The comparison, in the order of a step. `exact`: only layers are divided.
class Comparison {
 public:
  Comparison(comm::Communicator& ranks, const LayoutCase& c)
      : case_(c),
        exact_(c.mesh[Axis::kTensor] == 1 && c.mesh.size(kSampleAxes) == 1 && c.device == "cpu"),
        backend_(make_backend(c)),
        stream_(backend_->make_stream()),
        device_comm_(make_device_comm(ranks, *backend_, c)),
        mesh_(device_comm_ ? *device_comm_ : ranks, c.mesh),
        bound_(bound_of(mesh_.control(), c)),
        one_(c),
        stats_(one_.run(kStep, true, true)),
        norm_(one_.gradient_norm()),
        gradients_(one_.gradients()),
        all_(norm_of_all(gradients_)),
        engine_(*backend_, *stream_, mesh_,
                {.model = c.config,
                 .dtype = c.dtype,
                 .optimizer = c.optimizer,
                 .clip = c.clip * norm_,
                 .recompute = c.recompute,
                 .seed = c.seed,
                 .sequence_length = c.T,
                 .sequence_parallel = c.sequence_parallel,
                 .schedule = c.schedule,
                 .virtual_stages = c.virtual_stages,
                 .bucket_elems = c.bucket_elems,
                 .after_action = [this](const pipeline::Action& a) { done_.push_back(a); }}),
        on_device_(*backend_, *stream_, one_.of_replica(mesh_.index(kSampleAxes))),
        mine_(on_device_.batches()) {
    if (auto* const nccl = dynamic_cast<comm::NcclComm*>(&mesh_.group(kReplicaAxes))) {
      EXPECT_EQ(nccl->num_windows(), c.device == "nccl windows" ? 2U : 0U) << "weights and gradients";
    }
    engine_.initialize();
  }

  comm::ControlPlane& ranks() { return mesh_.control(); }
  void gradients() {
    engine_.forward_backward(mine_, kStep);
    EXPECT_GT(engine_.replicas().late_buckets(), 0) << "the first step teaches when buckets are complete";
    EXPECT_EQ(done_, pipeline::make_schedule({.kind = case_.schedule,
                                              .stages = case_.mesh[Axis::kPipeline],
                                              .micro_batches = case_.micro_batches,
                                              .virtual_stages = case_.virtual_stages},
                                             mesh_.at()[Axis::kPipeline]));
    // Once more, with buckets that leave during backward.
    result_ = engine_.forward_backward(mine_, kStep);
    EXPECT_EQ(engine_.replicas().late_buckets(), 0);

    EXPECT_EQ(result_.valid_targets, one_.valid_targets());
    EXPECT_EQ(result_.tokens, case_.mesh.size(kSampleAxes) * case_.micro_batches * case_.B * case_.T);
    const double valid = static_cast<double>(one_.valid_targets()), loss = stats_.loss / valid;
    const double relative = exact_ ? 0 : bound_;
    EXPECT_NEAR(result_.loss, loss, relative * loss);
    EXPECT_NEAR(result_.z_loss, stats_.z_loss / valid, relative * loss);
    EXPECT_NEAR(result_.mean_log_z, stats_.log_z / valid, relative * std::abs(stats_.log_z / valid));
    EXPECT_NEAR(result_.max_log_z, stats_.max_log_z, relative * std::abs(stats_.max_log_z));
    EXPECT_NEAR(result_.max_logit, stats_.max_logit, relative * std::abs(stats_.max_logit));
    ASSERT_GT(all_, 0.01);
    EXPECT_NEAR(norm_, all_, 1e-12 * all_) << "the norm of one rank, against its gradients added up here";
    for (const nn::ShardedRange& range : engine_.optimizer()->ranges()) {
      const std::string& name = range.ref->tensor->name;
      const std::vector<double> got = values_of(engine_.store().grads().flat_range(range.flat_begin, range.size));
      const std::vector<double> expected = range_of(gradients_.at(name), range);
      if (const double share = gradient_bound(name); share == 0) {
        EXPECT_EQ(got, expected) << name;
      } else {
        expect_close(name, got, expected, terms_of(gradients_, name), all_, share);
      }
      for (size_t i = 0; i < got.size() && is_table(name); ++i)
        EXPECT_TRUE(expected[i] != 0 || got[i] == 0) << name << " has a gradient for a row that no token reads";
    }
    expect_counted_once(mesh_, one_.store(), engine_.optimizer()->ranges());
    EXPECT_EQ(engine_.gradient_squares().size(), one_.store().sharded_tensors().size());
    EXPECT_NEAR(result_.grad_norm, norm_, exact_ && !shares_over_stages() ? 0 : bound_ * norm_);
  }

  void update() {
    one_.update(kStep, case_.clip * norm_ / norm_);  // rounded as the engine does it
    engine_.update(kStep, case_.lr);
    // Its first forward reads weights that are still on their way; a second one finds them there.
    LossStats arriving, there;
    engine_.evaluate(mine_, arriving);
    for (const auto& parameter : engine_.store().parameters())
      EXPECT_FALSE(parameter->weight.syncing()) << parameter->name << " was read before it was there";
    engine_.wait_param_sync();
    engine_.evaluate(mine_, there);
    EXPECT_EQ(arriving.loss, there.loss);
    EXPECT_EQ(arriving.z_loss, there.z_loss);
    EXPECT_NEAR(result_.clip_scale, case_.clip, exact_ && !shares_over_stages() ? 1e-15 : bound_);

    const double scale = share_of_first(case_.optimizer) * case_.clip;
    for (const nn::ShardedRange& range : engine_.optimizer()->ranges()) {
      const std::string& name = range.ref->tensor->name;
      std::vector<double> moments = range_of(gradients_.at(name), range);
      for (double& x : moments) x *= scale;
      expect_close(name + ".m", values_of(engine_.optimizer()->state("m").of(range)), moments,
                   scale * terms_of(gradients_, name), scale * all_, bound_);
    }

    // Values: each rank has all of its slices, whoever computed them.
    const UpdateBound bound(case_, case_.clip, bound_);
    const auto updated = one_.values();
    std::map<std::string, std::vector<double>> bounds;
    for (const auto& [name, values] : updated) {
      const std::vector<double>& gradient = gradients_.at(name);
      const double error = gradient_bound(name) * std::max(terms_of(gradients_, name), least_size(name, all_));
      for (size_t i = 0; i < values.size(); ++i) {
        const bool unread = gradient[i] == 0 && is_table(name);
        bounds[name].push_back(bound.of(values[i], gradient[i], unread ? 0 : error));
      }
    }
    for (const auto& ref : engine_.store().sharded_tensors()) {
      const nn::ShardedTensor& tensor = *ref.tensor;
      const std::vector<double> got = values_of(nn::ParameterStore::of(engine_.store().values(), ref));
      const std::vector<double> expected = slice_of(updated.at(tensor.name), tensor);
      if (exact_ && !shares_over_stages())
        EXPECT_EQ(got, expected) << tensor.name;
      else
        expect_within(tensor.name, got, expected, slice_of(bounds.at(tensor.name), tensor));
    }

    // The loss behind the update: to first order its gradient times what the weights may differ by, twice for the rest.
    const LossStats after = one_.run(kStep, true, false);
    double moved = 0;
    for (const auto& [name, gradient] : one_.gradients()) {
      for (size_t i = 0; i < gradient.size(); ++i) moved += 2 * std::abs(gradient[i]) * bounds.at(name)[i];
    }
    const LossStats own = engine_.total(there);
    const double valid = static_cast<double>(one_.valid_targets());
    const double expected = (after.loss + after.z_loss) / valid;
    EXPECT_NEAR((own.loss + own.z_loss) / valid, expected,
                exact_ && !shares_over_stages() ? 0 : moved + bound_ * expected);
  }

  void further_steps() {
    for (int64_t step = kStep + 1; step <= kStep + case_.further_steps; ++step) {
      const LossStats stats = one_.run(step, true, true);
      const training::StepResult result = engine_.forward_backward(mine_, step);
      const double expected = stats.loss / static_cast<double>(one_.valid_targets());
      // Where a gradient is noise its sign moves a weight, which moves the loss to second order.
      const double later = case_.dtype == DType::kFloat64 ? 1e-9 : 2e-5;
      ASSERT_NEAR(result.loss, expected, exact_ && !shares_over_stages() ? 0 : later * expected) << "step " << step;
      // engine.clip is what the first step's norm made it; a rank alone clips to the same.
      const double norm = one_.gradient_norm();
      one_.update(step, norm > case_.clip * norm_ ? case_.clip * norm_ / norm : 1.0);
      engine_.update(step, case_.lr);
    }
    engine_.wait_param_sync();
  }

 private:
  std::vector<double> values_of(const Tensor& t) const { return host_values(engine_.ctx(), t); }
  static bool is_table(const std::string& name) { return name.starts_with("embed."); }
  /// A tied table, or T5's of all layers, adds up its uses stage by stage.
  bool shares_over_stages() const { return case_.config.tied || model::shares_t5_bias(case_.config); }
  /// As a share of the tensor's norm; 0: the same bits.
  double gradient_bound(const std::string& name) const {
    if (!exact_) return bound_;
    const bool tied = case_.config.tied && name == "embed.tokens.weight";
    if (!tied && name != "embed.t5_bias.weight") return 0;
    return case_.dtype == DType::kFloat64 ? 1e-11 : 2e-6;
  }

  const LayoutCase& case_;
  const bool exact_;
  const std::unique_ptr<Backend> backend_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<comm::Communicator> device_comm_;
  mesh::Mesh mesh_;
  const double bound_;
  OneRank one_;
  LossStats stats_;
  double norm_;
  Gradients gradients_;
  double all_;
  pipeline::ActionList done_;
  training::Engine engine_;
  const OnDevice on_device_;
  std::span<const pipeline::MicroBatch> mine_;
  training::StepResult result_;
};

}  // namespace

void expect_numbers_of_one_rank(comm::Communicator& ranks, const LayoutCase& c) {
  Comparison comparison(ranks, c);
  const auto anybody_failed = [&] {
    return comm::max_of(comparison.ranks(), int64_t{::testing::Test::HasFailure()}) != 0;
  };
  comparison.gradients();
  if (anybody_failed()) return;
  comparison.update();
  if (anybody_failed()) return;
  comparison.further_steps();
}

}  // namespace ashlar::testing
