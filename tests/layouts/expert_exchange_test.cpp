// What the exchange of experts costs: how often the host waits, what the exchange overlaps with, the bytes that cross.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/strings.h"
#include "kernels/make_backend.h"
#include "launch/training/engine.h"
#include "parallel/comm/staged_comm.h"
#include "tests/layouts/axes.h"
#include "tests/parallel/model_fixture.h"
#include "tests/support/deferred/deferred_backend.h"
#include "tests/support/ranks/gather_texts.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

constexpr int64_t kBatches = 2, kExpertLayers = 2;

model::ModelConfig config_with_experts(int64_t shared_d_ff) {
  model::ModelConfig config = config_of(
      {.n_kv_heads = 2, .moe = {.experts = 8, .top_k = 2, .d_ff = 8, .shared_d_ff = shared_d_ff, .z_coef = 0.1}});
  config.n_layers = kExpertLayers;
  return config;
}

training::EngineOptions options_of(const model::ModelConfig& config, Recompute recompute) {
  return {.model = config,
          .dtype = DType::kFloat32,
          .optimizer = optim::OptimizerOptions{},
          .recompute = recompute,
          .sequence_length = kT};
}

/// A micro-batch, other tokens on each rank.
struct Tokens {
  Tokens(const Ctx& ctx, const model::ModelConfig& config, int rank)
      : source(ctx, config, 1, kT, 3 + static_cast<uint64_t>(rank)),
        batch{.view = source.batch(), .valid_targets = source.valid_targets()} {}
  RandomTokens source;
  pipeline::MicroBatch batch;
};

/// What a step after the first does on this rank, in this order. "choose": choices are sorted by expert. "host": the
/// host waits. "start": the expert group issues an operation; "wait": the stream waits for one. "y", "dx", "dw": the
/// products of experts and their gradients. "shared": the shared expert's products between "start" and "wait".
std::string order_of_a_step(Recompute recompute, int64_t shared_d_ff) {
  DeferredBackend device(kernels::make_backend({.threads = 1}));
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::unique_ptr<comm::Communicator> all = comm::make_device_comm(bootstrap().world(), device);
  mesh::Mesh mesh(*all, {{Axis::kExpert, all->size()}});
  const model::ModelConfig config = config_with_experts(shared_d_ff);
  training::Engine engine(device, *stream, mesh, options_of(config, recompute));
  engine.initialize();
  const Tokens tokens(engine.ctx(), config, all->rank());
  const std::vector<pipeline::MicroBatch> batches(kBatches, tokens.batch);
  const training::StepCounts counts{.tokens = all->size() * kBatches * kT,
                                    .valid_targets = all->size() * kBatches * tokens.batch.valid_targets};
  engine.backward(batches, 0, counts);

  comm::Communicator& group = mesh.group(Axis::kExpert);
  std::string order, last = group.last_operation();
  const auto add = [&](const char* what) { order += (order.empty() ? "" : " ") + std::string(what); };
  device.forget_host_waits();
  size_t waits = 0;
  device.observe([&](const std::string& call) {
    if (group.last_operation() != last) add("start");
    last = group.last_operation();
    for (; waits < device.host_waits().size(); ++waits) add("host");
    if (call == "sort_choices") add("choose");
    if (call == "linear_forward" && order.ends_with("start")) add("shared");
    if (call == "wait") add("wait");
    if (call == "grouped_linear_forward") add("y");
    if (call == "grouped_linear_backward_input") add("dx");
    if (call == "grouped_linear_backward_weight") add("dw");
  });
  engine.backward(batches, 1, counts);
  device.observe({});
  stream->synchronize();
  // The end of the step waits for gradients.
  while (order.ends_with("wait wait")) order.resize(order.size() - std::string_view(" wait").size());
  return order;
}

/// Of `micro_batches` that each go forward and backward through all layers, the waits at the end of the step aside.
std::string step_of(const std::string& forward, const std::string& backward) {
  std::string order;
  for (int64_t i = 0; i < kBatches; ++i)
    for (const std::string* const pass : {&forward, &backward})
      for (int64_t layer = 0; layer < kExpertLayers; ++layer) order += (order.empty() ? "" : " ") + *pass;
  return order;
}

// Counts, then rows there and back: the device has nothing else to do. In backward the weight gradient of gate and up
// hides the rows' return.
constexpr char kForward[] = "choose start wait host start wait y y start wait";
constexpr char kBackward[] = "start wait dx dw dx start dw wait";

TEST(ExpertExchange, TheHostWaitsOnceForALayerAndMicroBatch) {
  if (bootstrap().world().size() == 1) GTEST_SKIP() << "one rank exchanges nothing";
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective})
    EXPECT_EQ(order_of_a_step(recompute, 0), step_of(kForward, kBackward));
  EXPECT_EQ(order_of_a_step(Recompute::kBlock, 0), step_of(kForward, str_cat("start wait y y start wait ", kBackward)));
}

TEST(ExpertExchange, TheSharedExpertHidesRowsOnTheirWay) {
  if (bootstrap().world().size() == 1) GTEST_SKIP() << "one rank exchanges nothing";
  const std::string order = order_of_a_step(Recompute::kNone, 8);
  EXPECT_TRUE(order.starts_with("choose start wait host start shared wait y y start wait ")) << order;
}

/// Bytes of tensors that a rank sends in a step, and the rows that it sends to the experts of other ranks in one
/// direction, both of all ranks.
struct Crossing {
  int64_t bytes = 0;
  double rows = 0;
};
Crossing crossing_of_a_step(Recompute recompute) {
  comm::Communicator& world = bootstrap().world();
  const model::ModelConfig config = config_with_experts(0);
  mesh::Mesh mesh(world, {{Axis::kReplica, world.size() / 2}, {Axis::kExpert, 2}});
  const auto backend = kernels::make_backend({.threads = 1});
  const auto stream = backend->make_stream();
  training::Engine engine(*backend, *stream, mesh, options_of(config, recompute));
  engine.initialize();
  engine.wait_param_sync();  // its messages are not of the step
  const Tokens tokens(engine.ctx(), config, world.rank());
  const comm::Traffic& traffic = world.engine()->data_traffic();
  const int64_t before = traffic.bytes;
  const training::StepResult result = engine.forward_backward({&tokens.batch, 1}, 0);
  Crossing crossing;
  for (const std::string& sent : gather_texts(bootstrap().control(), std::to_string(traffic.bytes - before)))
    crossing.bytes += std::stoll(sent);
  const auto share = std::ranges::find(result.layers, "moe_crossing", &std::pair<std::string, double>::first);
  EXPECT_NE(share, result.layers.end());
  if (share != result.layers.end())
    crossing.rows = share->second * static_cast<double>(world.size() * kT * config.moe.top_k * kExpertLayers);
  return crossing;
}

// A row that crosses has C numbers, no more and no less: recomputation sends the rows there and back once more, and
// nothing else. The passes of forward and backward are four.
TEST(ExpertExchange, RowsThatCrossAreAllThatIsSent) {
  if (bootstrap().world().size() == 1) GTEST_SKIP() << "one rank exchanges nothing";
  const Crossing once = crossing_of_a_step(Recompute::kNone), again = crossing_of_a_step(Recompute::kBlock);
  const int64_t row = config_with_experts(0).d_model * size_of(DType::kFloat32);
  EXPECT_GT(once.rows, 0);
  EXPECT_DOUBLE_EQ(once.rows, again.rows);
  EXPECT_EQ(static_cast<double>(again.bytes - once.bytes), 2 * once.rows * static_cast<double>(row));
}

}  // namespace
}  // namespace ashlar::testing
