// How long stages idle. In virtual time, where a tensor carries the moment at which it was made: exactly what the order
// of the actions and their durations give, on any machine. In real time, with sleeping in the place of computing and
// then with a model: what the schedule gives with the durations that were measured, each for itself, so that a machine
// that slows one action down slows it down in both. What is left, the time between actions, others on the machine can
// only add to: of many runs the least disturbed must show it within 2 points, and none may idle less than the schedule.
// If none shows it and others have used the cores meanwhile, the test is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "core/base/strings.h"
#include "kernels/make_backend.h"
#include "parallel/pipeline/chunk_runner.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/simulate.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/on_mesh.h"
#include "tests/support/cpu_time.h"

namespace ashlar::testing {
namespace {

using Clock = std::chrono::steady_clock;
using pipeline::ActionKind;
using pipeline::BoundaryValues;

constexpr double kPoints = 0.02;
constexpr size_t kUndisturbed = 3;  ///< runs within kPoints that show it
constexpr int kMostRuns = 24;
constexpr double kOthers = 0.1;  ///< cores that others may use where so many runs must be undisturbed

/// How many cores others of this machine keep busy from its construction on. Asked by all ranks together.
class OtherWork {
 public:
  double cores() const {
    const double own = comm::sum_of(bootstrap().control(), cpu_seconds() - own_);
    const double all = comm::max_of(bootstrap().control(), machine_cpu_seconds() - machine_);
    const double took =
        comm::max_of(bootstrap().control(), std::chrono::duration<double>(Clock::now() - start_).count());
    return (all - own) / took;
  }

 private:
  const double own_ = cpu_seconds(), machine_ = machine_cpu_seconds();
  const Clock::time_point start_ = Clock::now();
};

struct Computed {
  ActionKind kind;
  int64_t micro_batch, chunk;
  Clock::time_point start, end;

  double seconds() const { return std::chrono::duration<double>(end - start).count(); }
};

/// Notes when another runner computes.
class TimedRunner final : public pipeline::Runner {
 public:
  explicit TimedRunner(pipeline::Runner& inner) : inner_(inner) {}

  BoundaryValues forward(int64_t chunk, int64_t m, const BoundaryValues& inputs, bool training) override {
    return timed({ActionKind::kForward, m, chunk}, [&] { return inner_.forward(chunk, m, inputs, training); });
  }
  BoundaryValues backward(int64_t chunk, int64_t m, const BoundaryValues& grads, bool defer) override {
    return timed({defer ? ActionKind::kBackwardInput : ActionKind::kBackward, m, chunk},
                 [&] { return inner_.backward(chunk, m, grads, defer); });
  }
  void backward_weight(int64_t chunk, int64_t m) override {
    timed({ActionKind::kBackwardWeight, m, chunk}, [&] { return inner_.backward_weight(chunk, m), BoundaryValues(); });
  }

  const std::vector<Computed>& computed() const { return computed_; }

 private:
  template <typename Compute>
  BoundaryValues timed(Computed entry, const Compute& compute) {
    entry.start = Clock::now();
    const BoundaryValues result = compute();
    entry.end = Clock::now();
    computed_.push_back(entry);
    return result;
  }

  pipeline::Runner& inner_;
  std::vector<Computed> computed_;
};

double cost_of(const pipeline::Costs& costs, ActionKind kind, int64_t k) {
  switch (kind) {
    case ActionKind::kForward: return costs.forward[k];
    case ActionKind::kBackward: return costs.backward_input[k] + costs.backward_weight[k];
    case ActionKind::kBackwardInput: return costs.backward_input[k];
    case ActionKind::kBackwardWeight: return costs.backward_weight[k];
    case ActionKind::kTransfer: break;
  }
  return 0;
}

/// Takes durations instead of computing: either sleeps, or counts virtual time. Two tensors cross a boundary: the
/// moment at which they were made, and who made them: the chunk of the model and the micro-batch.
class TimeRunner final : public pipeline::Runner {
 public:
  struct Args {
    const Ctx& ctx;
    const pipeline::ScheduleSpec& spec;
    const pipeline::Costs& costs;
    int64_t stage;
    bool sleeps;
  };
  explicit TimeRunner(const Args& args) : args_(args) {}

  /// What `spec` of such a runner says of its boundary.
  static std::vector<pipeline::BoundaryTensor> boundary() { return {{"moment", {1, 1}}, {"maker", {2, 1}}}; }

  BoundaryValues forward(int64_t chunk, int64_t m, const BoundaryValues& inputs, bool) override {
    const int64_t k = pipeline::model_chunk(args_.stage, chunk, args_.spec.stages);
    expect_maker(inputs, k - 1, m);
    return spend(ActionKind::kForward, k, m, inputs, k < args_.spec.chunks() - 1);
  }
  BoundaryValues backward(int64_t chunk, int64_t m, const BoundaryValues& grads, bool defer) override {
    const int64_t k = pipeline::model_chunk(args_.stage, chunk, args_.spec.stages);
    expect_maker(grads, k + 1, m);
    if (defer) queued_.insert({chunk, m});
    return spend(defer ? ActionKind::kBackwardInput : ActionKind::kBackward, k, m, grads, k > 0);
  }
  void backward_weight(int64_t chunk, int64_t m) override {
    const int64_t k = pipeline::model_chunk(args_.stage, chunk, args_.spec.stages);
    if (queued_.erase({chunk, m}) == 1) spend(ActionKind::kBackwardWeight, k, m, {}, false);
  }

  double now() const { return now_; }    ///< virtual
  double busy() const { return busy_; }  ///< virtual

 private:
  void expect_maker(const BoundaryValues& values, int64_t chunk, int64_t micro_batch) {
    if (values.empty()) return;
    double maker[2] = {};
    args_.ctx.backend.read(values.at(1).view(), maker, args_.ctx.stream);
    EXPECT_EQ(maker[0], static_cast<double>(chunk));
    EXPECT_EQ(maker[1], static_cast<double>(micro_batch));
  }
  BoundaryValues spend(ActionKind kind, int64_t k, int64_t m, const BoundaryValues& inputs, bool hands_on) {
    const double seconds = cost_of(args_.costs, kind, k);
    if (args_.sleeps) {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    } else {
      double arrived = 0;
      if (!inputs.empty()) args_.ctx.backend.read(inputs[0].view(), &arrived, args_.ctx.stream);
      now_ = std::max(now_, arrived) + seconds;
      busy_ += seconds;
    }
    if (!hands_on) return {};
    const Tensor moment = args_.ctx.empty(args_.ctx.dtype, {1, 1}), maker = args_.ctx.empty(args_.ctx.dtype, {2, 1});
    const double made_by[] = {static_cast<double>(k), static_cast<double>(m)};
    args_.ctx.backend.write(&now_, moment.mut_view(), args_.ctx.stream);
    args_.ctx.backend.write(made_by, maker.mut_view(), args_.ctx.stream);
    return {moment, maker};
  }

  const Args args_;
  std::set<std::pair<int64_t, int64_t>> queued_;
  double now_ = 0, busy_ = 0;
};

/// Seconds that each action of each chunk of the model takes.
using Duration = std::function<double(ActionKind, int64_t chunk, int64_t micro_batch)>;

/// What a transfer costs: nothing, or waiting until the other stage has taken what is sent, as messages too large for a
/// buffer do; a stage takes between its actions and while it waits.
enum class Sending { kBuffered, kTaken };

/// The stages of a schedule in time, from the lists of all stages alone: each action begins as soon as the one before
/// it on its stage and the transfer of its rows are done.
class Replay {
 public:
  Replay(const pipeline::ScheduleSpec& spec, Sending sending, Duration duration)
      : spec_(spec), sending_(sending), duration_(std::move(duration)), lists_(pipeline::make_schedules(spec)) {
    stages_.resize(lists_.size());
  }

  /// From the first computing anywhere to the last.
  double span() {
    while (advance_all() || advance_earliest()) {
    }
    double last = 0;
    for (size_t p = 0; p < stages_.size(); ++p) {
      EXPECT_EQ(stages_[p].next, lists_[p].size());
      last = std::max(last, stages_[p].clock);
    }
    return last;
  }

 private:
  using Pair = std::pair<int64_t, int64_t>;
  struct Post {
    double at;
    bool sends;
  };
  struct Input {  // what brings the rows of an action: which transfer with which stage
    int64_t peer;
    size_t nth;
  };
  struct Stage {
    size_t next = 0;
    double clock = 0;
    std::vector<std::pair<double, double>> computing;
    std::map<std::tuple<pipeline::Payload, int64_t, int64_t>, Input> inputs;
  };

  bool advance_all() {
    bool moved = false;
    for (size_t p = 0; p < stages_.size(); ++p) {
      while (stages_[p].next < lists_[p].size() && advance(p, false)) moved = true;
    }
    return moved;
  }
  // All wait for each other's time to come to theirs: nobody computes before the first of them continues.
  bool advance_earliest() {
    size_t first = stages_.size();
    double at = 0;
    for (size_t p = 0; p < stages_.size(); ++p) {
      if (stages_[p].next == lists_[p].size()) continue;
      const auto ready = ready_at(p, true);
      if (ready && (first == stages_.size() || *ready < at)) first = p, at = *ready;
    }
    return first < stages_.size() && advance(first, true);
  }
  bool advance(size_t p, bool others_idle) {
    Stage& stage = stages_[p];
    const pipeline::Action& a = lists_[p][stage.next];
    const auto own = static_cast<int64_t>(p);
    if (a.kind == ActionKind::kTransfer) {
      auto& posts = posts_[{own, a.peer}];
      if (a.receive)
        stage.inputs[{a.receive->payload, a.receive->micro_batch, a.receive->chunk}] = {a.peer, posts.size()};
      posts.push_back({stage.clock, a.send.has_value()});
    } else {
      const auto start = ready_at(p, others_idle);
      if (!start) return false;
      stage.clock = *start + duration_(a.kind, pipeline::model_chunk(own, a.chunk, spec_.stages), a.micro_batch);
      stage.computing.emplace_back(*start, stage.clock);
    }
    ++stage.next;
    return true;
  }
  // When a stage's next action can begin; nothing: that is not known yet.
  std::optional<double> ready_at(size_t p, bool others_idle) const {
    const Stage& stage = stages_[p];
    const pipeline::Action& a = lists_[p][stage.next];
    if (a.kind == ActionKind::kTransfer) return stage.clock;
    const auto payload = a.kind == ActionKind::kForward ? pipeline::Payload::kActivation : pipeline::Payload::kGradient;
    const auto input = stage.inputs.find({payload, a.micro_batch, a.chunk});
    if (a.kind == ActionKind::kBackwardWeight || input == stage.inputs.end()) return stage.clock;
    const auto [peer, nth] = input->second;
    const auto own = static_cast<int64_t>(p);
    if (peer == own) return stage.clock;
    const auto theirs = posts_.find({peer, own});
    if (theirs == posts_.end() || theirs->second.size() <= nth) return std::nullopt;
    const Post& mine = posts_.at({own, peer})[nth];
    const double met = std::max(mine.at, theirs->second[nth].at);
    if (sending_ == Sending::kBuffered || !mine.sends) return std::max(stage.clock, met);
    const Stage& other = stages_[static_cast<size_t>(peer)];
    for (const auto& [start, end] : other.computing)
      if (start <= met && met < end) return std::max(stage.clock, end);
    if (other.clock > met || others_idle) return std::max(stage.clock, met);
    return std::nullopt;
  }

  const pipeline::ScheduleSpec spec_;
  const Sending sending_;
  const Duration duration_;
  const std::vector<pipeline::ActionList> lists_;
  std::vector<Stage> stages_;
  std::map<Pair, std::vector<Post>> posts_;  // by stage and other stage
};

double span_of(const pipeline::ScheduleSpec& spec, Sending sending, const Duration& duration) {
  return Replay(spec, sending, duration).span();
}

/// The shares that runs of `measure` (the same number on all ranks) gave, ascending: until kUndisturbed are within
/// kPoints, or kMostRuns are done.
template <typename Measure>
std::vector<double> least_disturbed(const Measure& measure) {
  std::vector<double> found;
  for (int run = 0; run < kMostRuns; ++run) {
    found.push_back(measure());
    std::sort(found.begin(), found.end());
    if (found.size() >= kUndisturbed && found[kUndisturbed - 1] <= kPoints) break;
  }
  return found;
}

/// One step of a pipeline over `stages`, timed.
struct TimedStep {
  const Ctx& ctx;
  const pipeline::ScheduleSpec& spec;
  comm::Communicator& stages;
  std::vector<pipeline::BoundaryTensor> boundary;

  /// The computing of this stage; its order is the planned one.
  std::vector<Computed> run(pipeline::Runner& runner) const {
    const pipeline::ActionList list = pipeline::make_schedule(spec, stages.rank());
    pipeline::ActionList done;
    TimedRunner timed(runner);
    stages.barrier(ctx.stream).wait();
    pipeline::execute(ctx, {.spec = spec,
                            .actions = list,
                            .stages = stages,
                            .runner = timed,
                            .boundary = boundary,
                            .after = [&](const pipeline::Action& a) { done.push_back(a); }});
    EXPECT_EQ(done, list);
    pipeline::ActionList planned, computed;
    for (const pipeline::Action& a : list)
      if (a.kind != ActionKind::kTransfer) planned.push_back(a);
    for (const Computed& c : timed.computed())
      computed.push_back({.kind = c.kind, .micro_batch = c.micro_batch, .chunk = c.chunk});
    EXPECT_EQ(computed, planned);
    return timed.computed();
  }

  /// Idle share of stages x time from the first computing anywhere to the last. Ranks of one machine share the clock.
  double bubble(const std::vector<Computed>& computed) const {
    const auto seconds = [](Clock::time_point at) {
      return std::chrono::duration<double>(at.time_since_epoch()).count();
    };
    double busy = 0;
    for (const Computed& c : computed) busy += c.seconds();
    const double span = comm::max_of(bootstrap().control(), seconds(computed.back().end)) +
                        comm::max_of(bootstrap().control(), -seconds(computed.front().start));
    return 1 - comm::sum_of(bootstrap().control(), busy) / (static_cast<double>(spec.stages) * span);
  }

  /// That of the schedule with the durations that were measured, each for itself.
  double replayed(const std::vector<Computed>& computed, Sending sending) const {
    const auto index = [&](ActionKind kind, int64_t k, int64_t m) {
      return (static_cast<int64_t>(kind) * spec.chunks() + k) * spec.micro_batches + m;
    };
    std::vector<double> seconds(index(ActionKind::kTransfer, 0, 0) + spec.chunks() * spec.micro_batches, 0);
    for (const Computed& c : computed)
      seconds[index(c.kind, pipeline::model_chunk(stages.rank(), c.chunk, spec.stages), c.micro_batch)] = c.seconds();
    comm::sum_all(bootstrap().control(), seconds);
    double busy = 0;
    for (const double s : seconds) busy += s;
    const double span =
        span_of(spec, sending, [&](ActionKind kind, int64_t k, int64_t m) { return seconds[index(kind, k, m)]; });
    return 1 - busy / (static_cast<double>(spec.stages) * span);
  }

  /// By how much a run idled longer than its schedule; never less than where sending costs nothing.
  double excess(const std::vector<Computed>& computed) const {
    const double share = bubble(computed);
    EXPECT_GE(share, replayed(computed, Sending::kBuffered) - 1e-3) << "a stage began before it could";
    return share - replayed(computed, Sending::kTaken);
  }
};

struct BubbleCase {
  pipeline::PipelineSchedule kind;
  int64_t virtual_stages;
  double seconds;  ///< of each third of a stage's work on a micro-batch, where it sleeps
};
std::ostream& operator<<(std::ostream& out, const BubbleCase& c) { return out << pipeline::name_of(c.kind); }

class Bubble : public ::testing::TestWithParam<BubbleCase> {
 protected:
  static pipeline::ScheduleSpec spec_of(int64_t stages) {
    return {.kind = GetParam().kind,
            .stages = stages,
            .micro_batches = 8,
            .virtual_stages = stages > 1 ? GetParam().virtual_stages : 1};
  }
  const std::unique_ptr<Backend> backend_ = kernels::make_backend({.threads = 1});
  const std::unique_ptr<Stream> stream_ = backend_->make_stream();
};

/// Durations of a third of a stage's work on a micro-batch each, the same for all chunks or not.
pipeline::Costs costs_of(const pipeline::ScheduleSpec& spec, double third, bool even) {
  const double each = third / static_cast<double>(spec.virtual_stages);
  pipeline::Costs costs = pipeline::Costs::uniform(spec, each, each, each);
  for (int64_t k = 0; k < spec.chunks() && !even; ++k) {
    costs.forward[k] *= k % 2 == 0 ? 1 : 1.5;
    costs.backward_input[k] *= 1 + 0.25 * static_cast<double>(k);
  }
  return costs;
}

/// The table of parallel/pipeline/schedule.h, with a third of a unit for forward, input and weight part each.
double time_of_theory(const pipeline::ScheduleSpec& spec) {
  const auto P = static_cast<double>(spec.stages), M = static_cast<double>(spec.micro_batches),
             V = static_cast<double>(spec.virtual_stages), third = 1.0 / 3;
  switch (spec.kind) {
    case pipeline::PipelineSchedule::kForwardOnly: return (V * M + P - 1) * third / V;  // M >= P
    case pipeline::PipelineSchedule::kGpipe:
    case pipeline::PipelineSchedule::k1F1B: return M + P - 1;
    case pipeline::PipelineSchedule::kInterleaved: return (V * M + P - 1) / V;
    case pipeline::PipelineSchedule::kZbH1: return M + (P - 1) * 2 * third - (P - 1) * third;
  }
  return 0;
}

TEST_P(Bubble, IsExactlyThatOfTheScheduleInVirtualTime) {
  comm::Communicator& stages = bootstrap().world();
  const pipeline::ScheduleSpec spec = spec_of(stages.size());
  const Ctx ctx{.backend = *backend_, .stream = *stream_, .dtype = DType::kFloat64};
  const TimedStep step{.ctx = ctx, .spec = spec, .stages = stages, .boundary = TimeRunner::boundary()};
  for (const bool even : {true, false}) {
    const pipeline::Costs costs = costs_of(spec, 1.0 / 3, even);
    TimeRunner runner({.ctx = ctx, .spec = spec, .costs = costs, .stage = stages.rank(), .sleeps = false});
    step.run(runner);
    const double time = comm::max_of(bootstrap().control(), runner.now()),
                 busy = comm::sum_of(bootstrap().control(), runner.busy());
    const double rounding = 1e-12 * time;  // a few hundred additions
    const auto duration = [&](ActionKind kind, int64_t k, int64_t) { return cost_of(costs, kind, k); };
    EXPECT_NEAR(time, span_of(spec, Sending::kBuffered, duration), rounding);
    const pipeline::Simulation simulated = pipeline::simulate(spec, pipeline::make_schedules(spec), costs);
    EXPECT_LE(time, simulated.time + rounding) << "a stage waits where the simulator's stages, which meet, do not";
    if (!even) continue;
    EXPECT_NEAR(time, time_of_theory(spec), rounding);
    EXPECT_NEAR(1 - busy / (static_cast<double>(spec.stages) * time), simulated.bubble_fraction, 1e-12);
  }
}

// Sleeping takes no core.
TEST_P(Bubble, SlowIsThatOfTheScheduleWhereStagesSleep) {
  comm::Communicator& stages = bootstrap().world();
  if (stages.size() == 1 || stages.size() > 4) return;  // alone nothing idles; four ranks have measured it for eight
  const pipeline::ScheduleSpec spec = spec_of(stages.size());
  const Ctx ctx{.backend = *backend_, .stream = *stream_, .dtype = DType::kFloat64};
  const TimedStep step{.ctx = ctx, .spec = spec, .stages = stages, .boundary = TimeRunner::boundary()};
  const pipeline::Costs costs = costs_of(spec, GetParam().seconds, true);
  const OtherWork others;
  const std::vector<double> excess = least_disturbed([&] {
    TimeRunner sleeping({.ctx = ctx, .spec = spec, .costs = costs, .stage = stages.rank(), .sleeps = true});
    const std::vector<Computed> computed = step.run(sleeping);
    return step.excess(computed);
  });
  if (excess[kUndisturbed - 1] <= kPoints) return;
  const double busy = others.cores();
  if (busy > kOthers) GTEST_SKIP() << "others keep " << busy << " cores busy";
  FAIL() << "stages idle longer than the schedule, by these shares: " << ::testing::PrintToString(excess);
}

// Two stages: each needs a core of its own.
TEST_P(Bubble, SlowIsThatOfTheScheduleWhereStagesCompute) {
  comm::Communicator& stages = bootstrap().world();
  if (stages.size() != 2) return;
  const pipeline::ScheduleSpec spec = spec_of(stages.size());
  constexpr int64_t kTokens = 128;
  model::ModelConfig config = config_of({.name = "Wide"});
  config.d_model = 192;
  config.head_dim = config.rope.dims = 24;
  config.d_ff = 512;
  config.n_layers = 4;
  mesh::Mesh mesh(stages, {{Axis::kPipeline, spec.stages}});
  training::Engine engine(*backend_, *stream_, mesh,
                          {.model = config,
                           .optimizer = optim::OptimizerOptions{},
                           .sequence_length = kTokens,
                           .virtual_stages = spec.virtual_stages});
  engine.initialize();
  engine.wait_param_sync();
  TinyModel source(config, DType::kFloat32, 1, kTokens);
  const std::vector<pipeline::MicroBatch> batches(spec.micro_batches, {.view = source.batch()});
  const Ctx ctx = engine.ctx();
  const TimedStep step{
      .ctx = ctx, .spec = spec, .stages = stages, .boundary = {{"residual stream", {kTokens, config.d_model}}}};
  const OtherWork others;
  const std::vector<double> excess = least_disturbed([&] {
    engine.store().begin_step();
    const Tensor stats = ctx.make_struct(LossStats{});
    pipeline::ChunkRunner runner(ctx, engine.chunks(), batches, stats.mut_view());
    const std::vector<Computed> computed = step.run(runner);
    return step.excess(computed);
  });
  if (excess[kUndisturbed - 1] <= kPoints) return;
  const double busy = others.cores();
  if (busy > kOthers) GTEST_SKIP() << "others keep " << busy << " cores busy";
  FAIL() << "stages idle longer than the schedule, by these shares: " << ::testing::PrintToString(excess);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Bubble,
                         ::testing::Values(BubbleCase{pipeline::PipelineSchedule::kForwardOnly, 1, 0.02},
                                           BubbleCase{pipeline::PipelineSchedule::kGpipe, 1, 0.006},
                                           BubbleCase{pipeline::PipelineSchedule::k1F1B, 1, 0.006},
                                           BubbleCase{pipeline::PipelineSchedule::kInterleaved, 2, 0.006},
                                           BubbleCase{pipeline::PipelineSchedule::kZbH1, 1, 0.006}),
                         [](const auto& at) {
                           std::string name(pipeline::name_of(at.param.kind));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace ashlar::testing
