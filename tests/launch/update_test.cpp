// From the configuration to the weights: what a step of the optimizer does with each of its keys, by hand, for every
// role that a tensor can have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "kernels/make_backend.h"
#include "launch/config/run_config.h"
#include "launch/training/engine.h"
#include "launch/training/engine_options.h"
#include "tests/parallel/model_fixture.h"
#include "tests/support/lone_rank.h"

namespace ashlar::training {
namespace {

using ashlar::testing::host_values;

// Tables of tokens and positions, matrices, biases, norms; a head of its own.
const char* const kModel = R"(
[run]
dtype = "fp64"
[model]
d_model = 8
n_layers = 1
n_heads = 2
d_ff = 12
[vocab]
size = 11
[pos]
type = "learned"
[norm]
type = "layernorm"
affine = "scale_bias"
[ffn]
gated = false
[bias]
qkv = true
attn_out = true
ffn = true
lm_head = true
[train]
steps = 10
sequence_length = 6
global_batch = 1
[data]
path = "none"
[optimizer]
lr = 0.5
beta1 = 0.7
beta2 = 0.8
eps = 0.125
weight_decay = 0.25
clip = 3.0
)";

struct TinyRun {
  explicit TinyRun(const std::vector<std::string>& overrides)
      : config(config::resolve(config::parse_config(kModel, "update.toml", overrides), {}).config),
        engine(*backend, *stream, lone.mesh, engine_options(config)) {
    engine.initialize();
  }
  std::map<std::string, std::vector<double>> values() {
    std::map<std::string, std::vector<double>> all;
    for (const auto& ref : engine.store().sharded_tensors())
      all[ref.tensor->name] = host_values(engine.ctx(), nn::ParameterStore::of(engine.store().values(), ref));
    return all;
  }
  /// Gives every element of every gradient this value.
  void set_gradients(double value) {
    engine.ctx().backend.fill({.dst = engine.store().grads().mut_view(), .value = value}, engine.ctx().stream);
  }

  config::RunConfig config;
  std::unique_ptr<Backend> backend = kernels::make_backend({.threads = 1});
  std::unique_ptr<Stream> stream = backend->make_stream();
  mesh::LoneRank lone;
  Engine engine;
};

// A step without a gradient leaves nothing but the decay: matrices always, norms and biases never, tables by key.
TEST(Update, DecaysMatricesAndTheTablesWhenTheKeySaysSo) {
  for (const bool tables : {true, false}) {
    TinyRun run({tables ? "optimizer.decay_embeddings=true" : "optimizer.decay_embeddings=false"});
    const auto before = run.values();
    // Norms start as ones and biases as zeros: a decay of zero would not show.
    run.engine.ctx().backend.fill({.dst = run.engine.store().values().mut_view(), .value = 3}, *run.stream);
    run.set_gradients(0);
    run.engine.update(0, 0.5);
    run.engine.wait_param_sync();
    std::map<nn::Role, int> seen;
    for (const auto& ref : run.engine.store().sharded_tensors()) {
      const nn::Role role = ref.tensor->role;
      ++seen[role];
      const bool table = role == nn::Role::kEmbedding || role == nn::Role::kPosition;
      const bool decays = role == nn::Role::kMatrix || (table && tables);
      for (const double x : host_values(run.engine.ctx(), nn::ParameterStore::of(run.engine.store().values(), ref)))
        ASSERT_EQ(x, decays ? 3 * (1 - 0.5 * 0.25) : 3) << ref.tensor->name << ", decay_embeddings " << tables;
    }
    EXPECT_EQ(seen.size(), 5U) << "each role stands in the model";
    for (const char* name : {"embed.tokens.weight", "embed.positions.weight", "head.weight", "norm_final.bias"})
      EXPECT_TRUE(before.contains(name)) << name;
  }
}

/// Two steps with gradients that are all the same number: lr, betas, their corrections, eps, decay and clipping, each a
/// value of its own; clipped they still differ in size, or the correction of the second moment would hide beta2.
/// `lr_scale`: the factor on the learning rate of a tensor.
void expect_two_steps(TinyRun& run, const std::function<double(const std::string& name)>& lr_scale) {
  auto expected = run.values();
  std::map<std::string, double> decay;
  for (const auto& ref : run.engine.store().sharded_tensors()) {
    const nn::Role role = ref.tensor->role;
    decay[ref.tensor->name] = role == nn::Role::kNorm || role == nn::Role::kBias ? 0 : 0.25;
  }
  double m = 0, v = 0, elements = 0;
  for (const auto& [name, values] : expected) elements += static_cast<double>(values.size());
  const double norms[] = {2.0, 12.0}, lrs[] = {0.5, 0.0625};
  const double gradients[] = {norms[0] / std::sqrt(elements), -norms[1] / std::sqrt(elements)};
  for (int64_t step = 0; step < 2; ++step) {
    run.set_gradients(gradients[step]);
    run.engine.reduce_norm();
    run.engine.update(step, lrs[step]);
    const ClipState decided = run.engine.take_report().clip;
    run.engine.wait_param_sync();
    const double clip = step == 0 ? 1.0 : 3.0 / 12.0;  // the first norm is below optimizer.clip
    EXPECT_NEAR(decided.norm, norms[step], 1e-13 * norms[step]);
    EXPECT_NEAR(decided.clip_scale, clip, 1e-13);
    EXPECT_EQ(decided.skip, 0);
    const double g = gradients[step] * clip;
    m = 0.7 * m + (1 - 0.7) * g;
    v = 0.8 * v + (1 - 0.8) * g * g;
    const double m_hat = m / (1 - std::pow(0.7, step + 1)), v_hat = v / (1 - std::pow(0.8, step + 1));
    for (auto& [name, values] : expected) {
      const double lr = lrs[step] * lr_scale(name);
      for (double& w : values) w = w - lr * decay[name] * w - lr * m_hat / (std::sqrt(v_hat) + 0.125);
    }
    for (const auto& [name, values] : run.values()) {
      ASSERT_EQ(values.size(), expected[name].size());
      // A dozen roundings in fp64, of numbers below 2.
      for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[name][i], 32 * 0x1p-53) << name;
    }
  }
}

TEST(Update, UsesEveryKeyOfTheOptimizer) {
  TinyRun run({"optimizer.decay_embeddings=true"});
  expect_two_steps(run, [](const std::string&) { return 1; });
}

// Their matrices only: biases of experts, the router and the shared expert learn as everything else does.
TEST(Update, ExpertsHaveALearningRateOfTheirOwn) {
  TinyRun run({"moe.experts=3", "moe.shared_d_ff=4", "moe.router_bias=true", "optimizer.expert_lr_scale=0.375"});
  int experts = 0;
  expect_two_steps(run, [&](const std::string& name) {
    const bool scaled = name.find(".moe.experts.") != std::string::npos && name.ends_with(".weight");
    experts += scaled ? 1 : 0;
    return scaled ? 0.375 : 1;
  });
  EXPECT_EQ(experts, 2 * 3 * 2) << "in two steps, the matrices up and down of each of three experts";
}

// Three steps whose gradients change their sign; with the betas exchanged the mean's sign would win over the last one.
TEST(Update, LionUsesItsKeys) {
  TinyRun run({"optimizer.kind=lion", "optimizer.eps=default", "optimizer.clip=0"});
  auto expected = run.values();
  std::map<std::string, double> decay;
  for (const auto& ref : run.engine.store().sharded_tensors()) {
    const nn::Role role = ref.tensor->role;
    decay[ref.tensor->name] = role == nn::Role::kNorm || role == nn::Role::kBias ? 0 : 0.25;
  }
  const double gradients[] = {2.0, -12.0, 8.0}, lrs[] = {0.5, 0.0625, 0.125}, signs[] = {1, -1, 1};
  double m = 0;
  for (int64_t step = 0; step < 3; ++step) {
    const double g = gradients[step], lr = lrs[step], sign = 0.7 * m + (1 - 0.7) * g > 0 ? 1 : -1;
    EXPECT_EQ(sign, signs[step]);
    m = 0.8 * m + (1 - 0.8) * g;
    run.set_gradients(g);
    run.engine.reduce_norm();
    run.engine.update(step, lr);
    run.engine.take_report();
    run.engine.wait_param_sync();
    for (auto& [name, values] : expected) {
      for (double& w : values) w -= lr * decay[name] * w + lr * sign;
    }
    for (const auto& [name, values] : run.values()) {
      ASSERT_EQ(values.size(), expected[name].size());
      for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[name][i], 32 * 0x1p-53) << name;
    }
  }
}

TEST(Update, InitialWeightsAreTheSeedsOwn) {
  const auto first = TinyRun({"run.seed=1"}).values(), second = TinyRun({"run.seed=2"}).values();
  for (const auto& [name, values] : first) {
    const bool constant = std::all_of(values.begin(), values.end(), [&](double x) { return x == values[0]; });
    EXPECT_EQ(values == second.at(name), constant) << name;
  }
  EXPECT_EQ(first, TinyRun({"run.seed=1"}).values());
}

}  // namespace
}  // namespace ashlar::training
