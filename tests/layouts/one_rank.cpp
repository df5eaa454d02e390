#include "tests/layouts/one_rank.h"

#include <gtest/gtest.h>
#include <numeric>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "core/optim/grad_clip.h"
#include "kernels/make_backend.h"
#include "launch/training/engine.h"
#include "parallel/comm/host.h"
#include "parallel/comm/staged_comm.h"
#include "parallel/comm/try_on_all_ranks.h"
#include "parallel/model/position_tables.h"
#include "tests/gpu_emulator/backend/emulated_backend.h"
#include "tests/layouts/compare.h"
#include "tests/layouts/reference_numbers.h"
#include "tests/stand_ins/over_nccl.h"

namespace ashlar::testing {
namespace {

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

/// The size of what adds up to a gradient: its norm, but a key bias has a true gradient of zero. What is left of it is
/// rounding of the same sums over rows that make the gradient of the key weight.
double terms_of(const Tensors& gradients, const std::string& name) {
  const size_t end = name.rfind("attn.k.bias");
  const double norm = norm_of(gradients.at(name));
  return end == name.npos ? norm : std::max(norm, norm_of(gradients.at(name.substr(0, end) + "attn.k.weight")));
}

double norm_of_all(const Tensors& gradients) {
  double squares = 0;
  for (const auto& [name, values] : gradients) squares += norm_of(values) * norm_of(values);
  return std::sqrt(squares);
}

/// How far the dtype takes the gradients of one rank from those in fp64, as a share of the tensor's: what the model
/// makes of rounding, with the same choices of experts. Norms over few numbers before the scores, through eight layers,
/// make much of it.
double share_of_rounding(const LayoutCase& c) {
  LayoutCase reference = c;
  reference.dtype = DType::kFloat64;
  const MicroBatches batches(c);
  WholeModel rounded(c, batches), exact(reference, batches);
  if (c.dtype == DType::kBFloat16) exact.set_values(rounded.values());
  rounded.run(kStep, true, true);
  exact.routes().force(rounded.routes().take_choices());
  exact.run(kStep, true, true);
  const Tensors got = rounded.gradients(), gradients = exact.gradients();
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
/// true gradient by about as much, and the approximate functions of one may double its part. So is a layout in bf16,
/// where parts of sums are rounded.
double bound_of(comm::ControlPlane& ranks, const LayoutCase& c) {
  if (c.dtype == DType::kFloat64) return 1e-11;
  if (c.device != "emulated" && c.dtype == DType::kFloat32) return 2e-5;
  return std::max(2e-5, 3 * comm::max_of(ranks, ranks.rank() == 0 ? share_of_rounding(c) : 0.0));
}

/// Whether rounding may make a rank choose another expert: always in bf16, in fp32 where two scores are so near.
bool choices_may_differ(const LayoutCase& c, const Numbers& one) {
  if (c.config.expert_layers() == 0 || c.dtype == DType::kFloat64) return false;
  return c.dtype == DType::kBFloat16 || one.least_gap <= kNearScores;
}

/// The comparison, in the order of a step. `exact`: only layers are divided.
class Comparison {
 public:
  Comparison(comm::Communicator& ranks, const LayoutCase& c)
      : case_(c),
        exact_(c.mesh[Axis::kTensor] == 1 && c.mesh.size(kSampleAxes) == 1 && c.device == "cpu"),
        backend_(make_backend(c)),
        routes_(*backend_),
        stream_(backend_->make_stream()),
        device_comm_(make_device_comm(ranks, *backend_, c)),
        mesh_(device_comm_ ? *device_comm_ : ranks, c.mesh),
        bound_(bound_of(mesh_.control(), c)),
        batches_(c),
        one_(numbers_of_one_rank(c, batches_)),
        norm_(one_.norm),
        all_(norm_of_all(one_.gradients)),
        forced_(choices_may_differ(c, one_)),
        engine_(forced_ ? routes_ : *backend_, *stream_, mesh_,
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
        on_device_(*backend_, *stream_, batches_.of_replica(mesh_.index(kSampleAxes))),
        mine_(on_device_.batches()) {
    if (auto* const nccl = dynamic_cast<comm::NcclComm*>(&mesh_.group(kReplicaAxes))) {
      EXPECT_EQ(nccl->num_windows(), c.device == "nccl windows" ? 2U : 0U) << "weights and gradients";
    }
    engine_.initialize();
    fill_buffers(engine_.ctx(), engine_.store());
  }

  comm::ControlPlane& ranks() { return mesh_.control(); }
  void gradients() {
    force(0, case_.schedule);
    engine_.forward_backward(mine_, kStep);
    EXPECT_GT(engine_.replicas().late_buckets(), 0) << "the first step teaches when buckets are complete";
    EXPECT_EQ(done_, pipeline::make_schedule({.kind = case_.schedule,
                                              .stages = case_.mesh[Axis::kPipeline],
                                              .micro_batches = case_.micro_batches,
                                              .virtual_stages = case_.virtual_stages},
                                             mesh_.at()[Axis::kPipeline]));
    // Once more, with buckets that leave during backward.
    force(0, case_.schedule);
    result_ = engine_.forward_backward(mine_, kStep);
    EXPECT_EQ(routes_.num_forced_left(), 0);
    EXPECT_EQ(engine_.replicas().late_buckets(), 0);

    EXPECT_EQ(result_.valid_targets, batches_.valid_targets());
    EXPECT_EQ(result_.tokens, case_.mesh.size(kSampleAxes) * case_.micro_batches * case_.B * case_.T);
    EXPECT_EQ(result_.expert_counts, one_.expert_counts);
    const double valid = static_cast<double>(batches_.valid_targets()), loss = one_.first.loss / valid;
    const double relative = exact_ ? 0 : bound_;
    EXPECT_NEAR(result_.loss, loss, relative * loss);
    EXPECT_NEAR(result_.z_loss, one_.first.z_loss / valid, relative * loss);
    EXPECT_NEAR(result_.mean_log_z, one_.first.log_z / valid, relative * std::abs(one_.first.log_z / valid));
    EXPECT_NEAR(result_.max_log_z, one_.first.max_log_z, relative * std::abs(one_.first.max_log_z));
    EXPECT_NEAR(result_.max_logit, one_.first.max_logit, relative * std::abs(one_.first.max_logit));
    ASSERT_GT(all_, 0.01);
    EXPECT_NEAR(norm_, all_, 1e-12 * all_) << "the norm of one rank, against its gradients added up here";
    for (const nn::ShardedRange& range : engine_.optimizer()->ranges()) {
      const std::string& name = range.ref->tensor->name;
      const std::vector<double> got = values_of(engine_.store().grads().flat_range(range.flat_begin, range.size));
      const std::vector<double> expected = range_of(one_.gradients.at(name), range);
      if (const double share = gradient_bound(name); share == 0) {
        EXPECT_EQ(got, expected) << name;
      } else {
        expect_close(name, got, expected, terms_of(one_.gradients, name), all_, share);
      }
      for (size_t i = 0; i < got.size() && is_table(name); ++i)
        EXPECT_TRUE(expected[i] != 0 || got[i] == 0) << name << " has a gradient for a row that no token reads";
    }
    int64_t elements = 0;
    for (const auto& [name, values] : one_.gradients) elements += std::ssize(values);
    expect_counted_once(mesh_, elements, engine_.optimizer()->ranges());
    EXPECT_EQ(engine_.gradient_squares().size(), one_.gradients.size());
    EXPECT_NEAR(result_.grad_norm, norm_, exact_ && !shares_over_stages() ? 0 : bound_ * norm_);
  }

  void update() {
    engine_.update(kStep, case_.lr);
    // Its first forward reads weights that are still on their way; a second one finds them there.
    LossStats arriving, there;
    force(1, pipeline::PipelineSchedule::kForwardOnly);
    engine_.evaluate(mine_, arriving);
    for (const auto& parameter : engine_.store().parameters())
      EXPECT_FALSE(parameter->weight.syncing()) << parameter->name << " was read before it was there";
    engine_.wait_param_sync();
    force(1, pipeline::PipelineSchedule::kForwardOnly);
    engine_.evaluate(mine_, there);
    EXPECT_EQ(arriving.loss, there.loss);
    EXPECT_EQ(arriving.z_loss, there.z_loss);
    EXPECT_NEAR(result_.clip_scale, case_.clip, exact_ && !shares_over_stages() ? 1e-15 : bound_);

    const double scale = share_of_first(case_.optimizer) * case_.clip;
    for (const nn::ShardedRange& range : engine_.optimizer()->ranges()) {
      const std::string& name = range.ref->tensor->name;
      std::vector<double> moments = range_of(one_.gradients.at(name), range);
      for (double& x : moments) x *= scale;
      const double terms = scale * terms_of(one_.gradients, name);
      const std::vector<double> got = values_of(engine_.optimizer()->state("m").of(range));
      if (case_.optimizer.state_dtype == optim::StateDType::kBFloat16) {
        const double off = bound_ * std::max(terms, least_size(name, scale * all_));
        std::vector<double> bounds;  // one of the two neighbours in bf16 of what may be off by that
        for (const double x : moments) bounds.push_back(off + 0x1p-7 * (std::abs(x) + off));
        expect_within(name + ".m", got, moments, bounds);
      } else {
        expect_close(name + ".m", got, moments, terms, scale * all_, bound_);
      }
    }

    for (const auto& buffer : engine_.store().buffers())
      EXPECT_EQ(values_of(buffer->values), one_.buffers.at(buffer->tensor.name)) << buffer->tensor.name;

    // Values: each rank has all of its slices, whoever computed them.
    const UpdateBound bound(case_, case_.clip, bound_);
    std::map<std::string, std::vector<double>> bounds;
    for (const auto& [name, values] : one_.updated) {
      const std::vector<double>& gradient = one_.gradients.at(name);
      const double error = gradient_bound(name) * std::max(terms_of(one_.gradients, name), least_size(name, all_));
      for (size_t i = 0; i < values.size(); ++i) {
        const bool unread = gradient[i] == 0 && is_table(name);
        bounds[name].push_back(bound.of(values[i], gradient[i], unread ? 0 : error));
      }
    }
    for (const auto& ref : engine_.store().sharded_tensors()) {
      const nn::ShardedTensor& tensor = *ref.tensor;
      const std::vector<double> got = values_of(nn::ParameterStore::of(engine_.store().values(), ref));
      const std::vector<double> expected = slice_of(one_.updated.at(tensor.name), tensor);
      if (exact_ && !shares_over_stages())
        EXPECT_EQ(got, expected) << tensor.name;
      else
        expect_within(tensor.name, got, expected, slice_of(bounds.at(tensor.name), tensor));
    }

    // The loss behind the update: to first order its gradient times what the weights may differ by, twice for the rest.
    double moved = 0;
    for (const auto& [name, gradient] : one_.gradients_after) {
      for (size_t i = 0; i < gradient.size(); ++i) moved += 2 * std::abs(gradient[i]) * bounds.at(name)[i];
    }
    const LossStats own = engine_.total(there);
    const double valid = static_cast<double>(batches_.valid_targets());
    const double expected = (one_.after.loss + one_.after.z_loss) / valid;
    EXPECT_NEAR((own.loss + own.z_loss) / valid, expected,
                exact_ && !shares_over_stages() ? 0 : moved + bound_ * expected);
  }

  void further_steps() {
    for (int64_t step = kStep + 1; step <= kStep + case_.further_steps; ++step) {
      force(static_cast<size_t>(step - kStep + 1), case_.schedule);
      const training::StepResult result = engine_.forward_backward(mine_, step);
      const double expected =
          one_.further[static_cast<size_t>(step - kStep - 1)].loss / static_cast<double>(batches_.valid_targets());
      // Where a gradient is noise its sign moves a weight, which moves the loss to second order.
      const double later = case_.dtype == DType::kFloat64 ? 1e-9 : 2e-5;
      ASSERT_NEAR(result.loss, expected, exact_ && !shares_over_stages() ? 0 : later * expected) << "step " << step;
      engine_.update(step, case_.lr);
    }
    engine_.wait_param_sync();
  }

 private:
  /// Forces the choices of a run of one rank on the next run of this one, whose forwards come in another order.
  void force(size_t run, pipeline::PipelineSchedule schedule) {
    if (!forced_) return;
    RoutedBackend::Choices choices;
    const model::ModelConfig& config = case_.config;
    const pipeline::ScheduleSpec spec{.kind = schedule,
                                      .stages = case_.mesh[Axis::kPipeline],
                                      .micro_batches = case_.micro_batches,
                                      .virtual_stages = case_.virtual_stages};
    for (const pipeline::Action& action : pipeline::make_schedule(spec, mesh_.at()[Axis::kPipeline])) {
      if (action.kind != pipeline::ActionKind::kForward) continue;
      const int64_t m = mesh_.index(kSampleAxes) * case_.micro_batches + action.micro_batch;
      const model::StageRange& range = engine_.chunks()[static_cast<size_t>(action.chunk)]->range();
      for (int64_t at = config.expert_layers_before(range.first_layer);
           at < config.expert_layers_before(range.last_layer); ++at)
        choices.push_back(one_.choices[run][static_cast<size_t>(m * config.expert_layers() + at)]);
    }
    routes_.force(std::move(choices));
  }
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
  RoutedBackend routes_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<comm::Communicator> device_comm_;
  mesh::Mesh mesh_;
  const double bound_;
  const MicroBatches batches_;
  const Numbers one_;
  const double norm_, all_;
  const bool forced_;
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
  if (c.dtype == DType::kBFloat16 || anybody_failed()) return;
  comparison.update();
  if (anybody_failed()) return;
  comparison.further_steps();
}

}  // namespace ashlar::testing
