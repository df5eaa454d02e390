// Experts divided over ranks: every gradient, the router's included, the norm, the clip scale, an update and the losses
// behind it, against one rank that has all experts. With tensor ranks that have slices of experts or whole ones,
// pipelines, replicas of experts, schedules, sequence parallelism and recomputation.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/base/strings.h"
#include "kernels/make_backend.h"
#include "launch/training/engine.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/meshes.h"
#include "tests/layouts/one_rank.h"
#include "tests/layouts/reference_numbers.h"
#include "tests/parallel/model_fixture.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

using enum pipeline::PipelineSchedule;

/// How the ranks of one of the cases divide a model.
struct ExpertCase {
  int64_t pipeline, replica, expert, tensor;
  bool sequence_parallel = false;
  pipeline::PipelineSchedule schedule = k1F1B;
  int64_t micro_batches = 1;
  Recompute recompute = Recompute::kNone;
  model::ExpertCut cut = model::ExpertCut::kSlices;
};
constexpr auto kWhole = model::ExpertCut::kExperts;

// Any two choices meet in one of them; the ones of fewer ranks run beside each other.
constexpr ExpertCase kExpertCases[] = {
    {1, 1, 2, 1, false, k1F1B, 2},
    {1, 1, 2, 1, false, k1F1B, 1, Recompute::kBlock},
    {1, 1, 4, 1, false, kGpipe, 1, Recompute::kSelective},
    {1, 2, 2, 1, false, k1F1B, 3, Recompute::kBlock},
    {1, 1, 2, 2, false, k1F1B, 2},
    {1, 1, 2, 2, true, k1F1B, 1, Recompute::kBlock, kWhole},
    {2, 1, 2, 1, false, kInterleaved, 4, Recompute::kBlock},
    {2, 1, 2, 1, false, kZbH1, 3},
    {1, 1, 8, 1, false, k1F1B, 1},
    {1, 2, 4, 1, false, k1F1B, 2, Recompute::kBlock},
    {1, 2, 2, 2, false, kGpipe, 2, Recompute::kSelective, kWhole},
    {2, 1, 2, 2, true, kZbH1, 3, Recompute::kBlock},
    {2, 2, 2, 1, false, kInterleaved, 2},
    {2, 1, 4, 1, false, kZbH1, 2, Recompute::kSelective},
    {4, 1, 2, 1, false, k1F1B, 5},
    {1, 1, 4, 2, true, k1F1B, 2},
    {1, 1, 1, 2, true, k1F1B, 2, Recompute::kBlock, kWhole},
    {2, 1, 2, 2, true, kZbH1, 2, Recompute::kNone, kWhole},
};

struct Model {
  const char* name;
  model::MoeConfig moe;
  bool biases = false;
  model::FfnConfig ffn = {};
};
const Model kModels[] = {
    {"Softmax",
     {.experts = 9,
      .top_k = 2,
      .d_ff = 8,
      .shared_d_ff = 8,
      .selection_bias = true,
      .bias_rate = 0.05,
      .balance_coef = 0.3,
      .z_coef = 0.1}},
    {"Sigmoid",
     {.experts = 8,
      .top_k = 3,
      .d_ff = 8,
      .first_layer = 1,
      .shared_d_ff = 8,
      .shared_gate = true,
      .rule = kGroupsOfSigmoids,
      .selection_bias = true,
      .bias_rate = 0.02,
      .balance = model::Balance::kPrevious,
      .balance_coef = 0.2}},
    {"GptOss",
     {.experts = 11, .top_k = 4, .d_ff = 8, .router_bias = true, .z_coef = 0.1},
     true,
     {.act = Activation::kQuickGelu, .clamp = kClamp, .linear_offset = 1}},
};

LayoutCase expert_case(const ExpertCase& layout, const Model& m, DType dtype) {
  LayoutCase c{.config = config_of({.name = m.name, .n_kv_heads = 2, .biases = m.biases, .ffn = m.ffn, .moe = m.moe}),
               .recompute = layout.recompute,
               .dtype = dtype,
               .B = 1,
               .T = 8,
               .mesh = {{Axis::kPipeline, layout.pipeline},
                        {Axis::kReplica, layout.replica},
                        {Axis::kExpert, layout.expert},
                        {Axis::kTensor, layout.tensor}},
               .sequence_parallel = layout.sequence_parallel,
               .schedule = layout.schedule,
               .virtual_stages = layout.schedule == kInterleaved ? 2 : 1,
               .micro_batches = layout.micro_batches};
  c.config.moe.tensor = layout.cut;
  c.config.n_layers = std::max<int64_t>(2, c.mesh[Axis::kPipeline] * c.virtual_stages);
  return c;
}

/// On the ranks of the mesh; on fewer or many more nothing happens.
void expect_on_its_ranks(const LayoutCase& c, const Model& m) {
  comm::Communicator& world = bootstrap().world();
  if (c.mesh.ranks() > world.size() || 2 * c.mesh.ranks() <= world.size()) return;
  SCOPED_TRACE(str_cat(m.name, " ", name_of(c.dtype), " on ", name_of(c.mesh)));
  expect_numbers_of_one_rank(world, c);
}

class ExpertAxisNumbers : public ::testing::TestWithParam<int> {};

TEST_P(ExpertAxisNumbers, ComputesWhatOneRankDoes) {
  const auto number = static_cast<size_t>(GetParam());
  const Model& m = kModels[(number + number / std::size(kExpertCases)) % std::size(kModels)];
  LayoutCase c = expert_case(kExpertCases[number % std::size(kExpertCases)], m,
                             number % 5 < 2 ? DType::kFloat32 : DType::kFloat64);
  c.further_steps = 1;
  expect_on_its_ranks(c, m);
}

/// Layouts for what takes longer, or is another dtype: both cuts of experts, with a pipeline and with replicas.
constexpr ExpertCase kFewCases[] = {
    {1, 1, 2, 1, false, k1F1B, 2},
    {1, 1, 2, 2, true, k1F1B, 2, Recompute::kBlock},
    {1, 1, 2, 2, false, k1F1B, 1, Recompute::kSelective, kWhole},
    {2, 1, 2, 1, false, kZbH1, 3, Recompute::kBlock},
    {1, 2, 2, 1, false, kGpipe, 1},
    {2, 1, 2, 2, false, k1F1B, 2, Recompute::kBlock, kWhole},
    {1, 2, 2, 2, true, kZbH1, 1},
};

class ExpertAxisFew : public ::testing::TestWithParam<int> {
 protected:
  void expect_numbers(DType dtype, const char* device) {
    for (size_t turn = 0; turn < (long_form() ? std::size(kModels) : 1); ++turn) {
      const Model& m = kModels[(static_cast<size_t>(GetParam()) + turn) % std::size(kModels)];
      LayoutCase c = expert_case(kFewCases[GetParam()], m, dtype);
      c.device = device;
      expect_on_its_ranks(c, m);
    }
  }
};

// There routers read rounded rows, and would choose other experts than one rank.
TEST_P(ExpertAxisFew, InBf16ComputesWhatOneRankDoes) { expect_numbers(DType::kBFloat16, "cpu"); }
TEST_P(ExpertAxisFew, SlowOnTheEmulatedDeviceComputesWhatOneRankDoes) {
  expect_numbers(GetParam() % 2 == 0 ? DType::kFloat32 : DType::kFloat64, "emulated");
}

/// Operations of the expert group in a step of one micro-batch.
int64_t exchanges_of_a_step(Recompute recompute) {
  const model::ModelConfig config = config_of({.n_kv_heads = 2, .moe = kModels[0].moe});
  comm::Communicator& world = bootstrap().world();
  mesh::Mesh mesh(world, {{Axis::kReplica, world.size() / 2}, {Axis::kExpert, 2}});
  const auto backend = kernels::make_backend({.threads = 1});
  const auto stream = backend->make_stream();
  training::Engine engine(
      *backend, *stream, mesh,
      {.model = config, .optimizer = optim::OptimizerOptions{}, .recompute = recompute, .sequence_length = kT});
  engine.initialize();
  const RandomTokens source(engine.ctx(), config, 1, kT, 3);
  const pipeline::MicroBatch batch{.view = source.batch(), .valid_targets = source.valid_targets()};
  const auto last = [&] {
    const std::string text = mesh.group(Axis::kExpert).last_operation();
    return std::stoll(text.substr(text.rfind(' ') + 1));
  };
  engine.forward_backward({&batch, 1}, 0);
  const int64_t before = last();
  engine.forward_backward({&batch, 1}, 1);
  return last() - before;
}

// Of each layer: the counts, the rows there and back, and their gradients; recomputation sends the rows once more, and
// neither chooses nor counts again.
TEST(ExpertAxis, RecomputationTakesOverTheCounts) {
  if (bootstrap().world().size() == 1 || bootstrap().world().size() == 8) return;
  EXPECT_EQ(exchanges_of_a_step(Recompute::kNone), 2 * (1 + 2 + 2));
  EXPECT_EQ(exchanges_of_a_step(Recompute::kBlock), 2 * (1 + 2 + 2 + 2));
}

// Two ranks with the same tokens make the same choices, so that half of all choices are elsewhere.
TEST(ExpertAxis, TellsTheShareOfChoicesThatCrossRanks) {
  comm::Communicator& world = bootstrap().world();
  if (world.size() != 2 && world.size() != 4) return;
  for (const auto cut : {model::ExpertCut::kSlices, model::ExpertCut::kExperts}) {
    model::ModelConfig config = config_of({.n_kv_heads = 2, .moe = kModels[0].moe});
    config.moe.tensor = cut;
    mesh::Mesh mesh(world, {{Axis::kExpert, 2}, {Axis::kTensor, world.size() / 2}});
    const auto backend = kernels::make_backend({.threads = 1});
    const auto stream = backend->make_stream();
    training::Engine engine(*backend, *stream, mesh,
                            {.model = config, .optimizer = optim::OptimizerOptions{}, .sequence_length = kT});
    engine.initialize();
    const RandomTokens source(engine.ctx(), config, 1, kT, 3);
    const pipeline::MicroBatch batch{.view = source.batch(), .valid_targets = source.valid_targets()};
    const auto result = engine.forward_backward({&batch, 1}, 0);
    const auto found = std::ranges::find(result.layers, "moe_crossing", &std::pair<std::string, double>::first);
    ASSERT_NE(found, result.layers.end());
    EXPECT_DOUBLE_EQ(found->second, 0.5) << model::name_of(cut);
  }
}

// Where two experts of a token have all but equal scores, rounding may choose the other one on a mesh.
TEST(ExpertAxis, NearScoresInFp32ChooseWhatOneRankDoes) {
  if (bootstrap().world().size() != 2) return;
  LayoutCase c = expert_case(kFewCases[0], kModels[0], DType::kFloat32);
  c.B = 4;
  c.T = 16;
  c.further_steps = 1;
  while (numbers_of_one_rank(c, MicroBatches(c)).least_gap > kNearScores) ASSERT_LT(++c.seed, 500U);
  SCOPED_TRACE(str_cat("seed ", c.seed));
  expect_on_its_ranks(c, kModels[0]);
}

INSTANTIATE_TEST_SUITE_P(Numbers, ExpertAxisFew, ::testing::Range(0, static_cast<int>(std::size(kFewCases))));
INSTANTIATE_TEST_SUITE_P(Numbers, ExpertAxisNumbers,
                         ::testing::Range(0, static_cast<int>(std::size(kExpertCases)) * (long_form() ? 3 : 1)));

}  // namespace
}  // namespace ashlar::testing
