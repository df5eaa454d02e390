// How long stages idle, measured, against what the simulator says for the same durations: first with sleeping in the
// place of computing, then with a model. Other programs on the machine disturb a measurement: it is repeated until it
// agrees, a few times.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "core/base/strings.h"
#include "parallel/pipeline/chunk_runner.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/simulate.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/on_mesh.h"

namespace ashlar::testing {
namespace {

using Clock = std::chrono::steady_clock;
using pipeline::ActionKind;

constexpr double kPoints = 0.03;

struct Computed {
  ActionKind kind;
  int64_t micro_batch, chunk;
  Clock::time_point start, end;
  double cpu_seconds;

  double seconds() const { return std::chrono::duration<double>(end - start).count(); }
};

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

/// Notes when another runner computes.
class TimedRunner final : public pipeline::Runner {
 public:
  explicit TimedRunner(pipeline::Runner& inner) : inner_(inner) {}

  Tensor forward(int64_t chunk, int64_t m, const Tensor& input, bool training) override {
    return timed({ActionKind::kForward, m, chunk}, [&] { return inner_.forward(chunk, m, input, training); });
  }
  Tensor backward(int64_t chunk, int64_t m, const Tensor& grad, bool defer) override {
    return timed({defer ? ActionKind::kBackwardInput : ActionKind::kBackward, m, chunk},
                 [&] { return inner_.backward(chunk, m, grad, defer); });
  }
  void backward_weight(int64_t chunk, int64_t m) override {
    timed({ActionKind::kBackwardWeight, m, chunk}, [&] { return inner_.backward_weight(chunk, m), Tensor(); });
  }

  const std::vector<Computed>& computed() const { return computed_; }

 private:
  template <typename Compute>
  Tensor timed(Computed entry, const Compute& compute) {
    const double cpu = cpu_seconds();
    entry.start = Clock::now();
    const Tensor result = compute();
    entry.end = Clock::now();
    entry.cpu_seconds = cpu_seconds() - cpu;
    computed_.push_back(entry);
    return result;
  }

  pipeline::Runner& inner_;
  std::vector<Computed> computed_;
};

/// Sleeps as long as computing should take.
class SleepingRunner final : public pipeline::Runner {
 public:
  SleepingRunner(const Ctx& ctx, const pipeline::ScheduleSpec& spec, const pipeline::Costs& costs, int64_t stage)
      : ctx_(ctx), spec_(spec), costs_(costs), stage_(stage) {}

  Tensor forward(int64_t chunk, int64_t, const Tensor&, bool) override {
    const int64_t k = pipeline::model_chunk(stage_, chunk, spec_.stages);
    return sleep(costs_.forward[k], k < spec_.chunks() - 1);
  }
  Tensor backward(int64_t chunk, int64_t, const Tensor&, bool defer) override {
    const int64_t k = pipeline::model_chunk(stage_, chunk, spec_.stages);
    return sleep(costs_.backward_input[k] + (defer ? 0 : costs_.backward_weight[k]), k > 0);
  }
  void backward_weight(int64_t chunk, int64_t) override {
    sleep(costs_.backward_weight[pipeline::model_chunk(stage_, chunk, spec_.stages)], false);
  }

 private:
  Tensor sleep(double seconds, bool makes_rows) const {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return makes_rows ? ctx_.empty(ctx_.dtype, {1, 1}) : Tensor();
  }

  const Ctx& ctx_;
  const pipeline::ScheduleSpec& spec_;
  const pipeline::Costs& costs_;
  const int64_t stage_;
};

/// One step of a pipeline over `stages`, timed.
struct Step {
  const Ctx& ctx;
  const pipeline::ScheduleSpec& spec;
  comm::Communicator& stages;
  Shape rows;

  /// The computing of this stage; its order is the planned one.
  std::vector<Computed> run(pipeline::Runner& runner) const {
    const pipeline::Stream stream = pipeline::make_schedule(spec, stages.rank());
    pipeline::Stream done;
    TimedRunner timed(runner);
    stages.barrier().wait();
    pipeline::execute(ctx, {.spec = spec,
                            .stream = stream,
                            .stages = stages,
                            .runner = timed,
                            .rows = rows,
                            .after = [&](const pipeline::Action& a) { done.push_back(a); }});
    EXPECT_EQ(done, stream);
    pipeline::Stream planned, computed;
    for (const pipeline::Action& a : stream)
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
    const double span =
        comm::max_of(stages, seconds(computed.back().end)) + comm::max_of(stages, -seconds(computed.front().start));
    return 1 - comm::sum_of(stages, busy) / (static_cast<double>(spec.stages) * span);
  }

  /// Whether each rank had a core while it computed.
  bool undisturbed(const std::vector<Computed>& computed) const {
    double wall = 0, cpu = 0;
    for (const Computed& c : computed) wall += c.seconds(), cpu += c.cpu_seconds;
    return comm::max_of(stages, wall / cpu) < 1.02;
  }

  /// The simulator's, with a duration for each kind of each chunk.
  double simulated(const pipeline::Costs& costs) const {
    return pipeline::simulate(spec, pipeline::make_schedules(spec), costs).bubble_fraction;
  }

  /// Mean duration of what each chunk of the model computed.
  pipeline::Costs mean_costs(const std::vector<Computed>& computed) const {
    pipeline::Costs costs = pipeline::Costs::uniform(spec, 0, 0, 0);
    for (const Computed& c : computed) {
      auto& of = c.kind == ActionKind::kForward          ? costs.forward
                 : c.kind == ActionKind::kBackwardWeight ? costs.backward_weight
                                                         : costs.backward_input;
      of[pipeline::model_chunk(stages.rank(), c.chunk, spec.stages)] +=
          c.seconds() / static_cast<double>(spec.micro_batches);
    }
    for (auto* of : {&costs.forward, &costs.backward_input, &costs.backward_weight}) comm::sum_all(stages, *of);
    return costs;
  }
};

struct Case {
  pipeline::ScheduleKind kind;
  int64_t virtual_stages;
  double seconds;  ///< of each third of a stage's work on a micro-batch, where it sleeps
};

class Bubble : public ::testing::TestWithParam<Case> {
 protected:
  static pipeline::ScheduleSpec spec_of(int64_t stages) {
    return {.kind = GetParam().kind,
            .stages = stages,
            .micro_batches = 8,
            .virtual_stages = stages > 1 ? GetParam().virtual_stages : 1};
  }
  const std::unique_ptr<Backend> backend_ = kernels::make_cpu_backend({.threads = 1});
  const std::unique_ptr<Stream> stream_ = backend_->make_stream();
};

TEST_P(Bubble, IsTheSimulatorsWhereStagesSleep) {
  comm::Communicator& stages = bootstrap().world();
  if (stages.size() > 4) return;  // the run on four ranks has measured it
  const pipeline::ScheduleSpec spec = spec_of(stages.size());
  const double each = GetParam().seconds / static_cast<double>(spec.virtual_stages);
  const Ctx ctx{.backend = *backend_, .stream = *stream_, .dtype = DType::kFloat32};
  const Step step{.ctx = ctx, .spec = spec, .stages = stages, .rows = {1, 1}};
  for (const bool even : {true, false}) {
    pipeline::Costs costs = pipeline::Costs::uniform(spec, each, each, each);
    for (int64_t k = 0; k < spec.chunks() && !even; ++k) {
      costs.forward[k] *= k % 2 == 0 ? 1 : 1.5;
      costs.backward_input[k] *= 1 + 0.25 * static_cast<double>(k);
    }
    const double expected = step.simulated(costs);
    double closest = 1;
    for (int attempt = 0; attempt < 12 && std::abs(closest - expected) > kPoints; ++attempt) {
      SleepingRunner sleeping(ctx, spec, costs, stages.rank());
      const double measured = step.bubble(step.run(sleeping));
      if (std::abs(measured - expected) < std::abs(closest - expected)) closest = measured;
    }
    EXPECT_NEAR(closest, expected, kPoints) << (even ? "even" : "uneven");
  }
}

// Two stages: each needs a core of its own. Where others take it from them, and no attempt agrees all the same, nothing
// is known of the executor.
TEST_P(Bubble, IsTheSimulatorsWhereStagesCompute) {
  comm::Communicator& stages = bootstrap().world();
  if (stages.size() > 2) return;  // the run on two ranks has measured it
  const pipeline::ScheduleSpec spec = spec_of(stages.size());
  constexpr int64_t kT = 128;
  model::ModelConfig config = config_of({.name = "Wide"});
  config.d_model = 192;
  config.head_dim = config.rope.dims = 24;
  config.d_ff = 512;
  config.n_layers = 4;
  mesh::Mesh mesh(stages, {.pipeline = spec.stages}, config.n_kv_heads);
  training::Engine engine(*backend_, *stream_, mesh,
                          {.model = config,
                           .optimizer = optim::AdamWOptions{},
                           .sequence_length = kT,
                           .virtual_stages = spec.virtual_stages});
  engine.initialize();
  engine.wait_weights();
  TinyModel source(config, DType::kFloat32, 1, kT);
  const std::vector<pipeline::MicroBatch> batches(spec.micro_batches, {.view = source.batch()});
  const Ctx ctx = engine.ctx();
  const Step step{.ctx = ctx, .spec = spec, .stages = stages, .rows = {kT, config.d_model}};
  double closest = 1;
  int undisturbed = 0;
  for (int attempt = 0; attempt < 30 && undisturbed < 25 && std::abs(closest) > kPoints; ++attempt) {
    engine.store().begin_step();
    LossStats stats;
    pipeline::ChunkRunner runner(ctx, engine.chunks(), batches, stats);
    const std::vector<Computed> computed = step.run(runner);
    const double difference = step.bubble(computed) - step.simulated(step.mean_costs(computed));
    if (std::abs(difference) < std::abs(closest)) closest = difference;
    undisturbed += step.undisturbed(computed);
  }
  if (std::abs(closest) > kPoints && undisturbed == 0) GTEST_SKIP() << "other programs use the cores of this machine";
  EXPECT_NEAR(closest, 0.0, kPoints) << undisturbed << " attempts had the cores";
}

INSTANTIATE_TEST_SUITE_P(Schedules, Bubble,
                         ::testing::Values(Case{pipeline::ScheduleKind::kForwardOnly, 1, 0.03},
                                           Case{pipeline::ScheduleKind::kGpipe, 1, 0.01},
                                           Case{pipeline::ScheduleKind::k1F1B, 1, 0.01},
                                           Case{pipeline::ScheduleKind::kInterleaved, 2, 0.01},
                                           Case{pipeline::ScheduleKind::kZbH1, 1, 0.01}),
                         [](const auto& at) {
                           std::string name(pipeline::name_of(at.param.kind));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace ashlar::testing
