// Experts against a plain computation in fp64, and the gradient of the whole objective with balance loss and z-loss.
#include "parallel/model/experts.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "tests/parallel/model_fixture.h"

namespace ashlar {
namespace {

using model::Balance;
using model::ModelConfig;
using testing::tiny_config;
using testing::TinyModel;

using Row = std::vector<double>;

/// The branch of experts of layer 0 in a model, and its weights on the host.
class ExpertLayer {
 public:
  explicit ExpertLayer(const ModelConfig& config)
      : config_(config), model_(config, DType::kFloat64, 2, 7), x_(static_cast<size_t>(kRows * config.d_model)) {
    if (config.moe.expert_scale) model_.set("blocks.0.moe.expert_scale", {1.5, -0.25, 0.5, 2, 0});
    if (config.moe.router_norm) testing::scale(model_, "blocks.0.moe.router.scale", -3, 0, 5);
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = 2 * Philox::uniform(Philox::block(3, 1, i)[0]) - 1;
  }
  static constexpr int64_t kRows = 14;

  Row x(int64_t n) const {
    const auto begin = x_.begin() + n * config_.d_model;
    return {begin, begin + config_.d_model};
  }
  /// x w^T + b of a tensor blocks.0.moe.NAME; b if the model has one.
  Row product(const std::string& name, const Row& x) const {
    const Row w = model_.values("blocks.0.moe." + name + ".weight");
    const size_t rows = w.size() / x.size();
    Row y(rows);
    const std::string bias = "blocks.0.moe." + name + ".bias";
    if (model_.store().find(bias) != nullptr) y = model_.values(bias);
    for (size_t r = 0; r < rows; ++r) y[r] += std::inner_product(x.begin(), x.end(), w.begin() + r * x.size(), 0.0);
    return y;
  }
  /// down(silu(gate) * up) with the limits of ffn, of an expert or the shared one.
  Row network(const std::string& name, const Row& x) const {
    Row h = product(name + ".up", x);
    const Row gate = config_.ffn.gated ? product(name + ".gate", x) : Row{};
    for (size_t i = 0; i < h.size(); ++i) {
      const double g = config_.ffn.gated ? gate[i] : h[i];
      h[i] = (config_.ffn.gated ? h[i] + config_.ffn.linear_offset : 1) * g / (1 + std::exp(-g));
    }
    return product(name + ".down", h);
  }
  /// What the router reads.
  Row router_input(const Row& x) const {
    if (!config_.moe.router_norm) return x;
    Row y = model_.values("blocks.0.moe.router.scale");
    const auto width = static_cast<double>(x.size());
    const double square = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / width;
    for (size_t i = 0; i < y.size(); ++i) y[i] *= x[i] / std::sqrt((square + config_.norm.variant.eps) * width);
    return y;
  }
  /// The selection bias, which changes the choice of most rows.
  double bias(int64_t e) const { return config_.moe.selection_bias ? 0.5 * static_cast<double>(3 * e % 5) : 0; }
  /// The choices and weights of a row.
  std::vector<std::pair<int64_t, double>> choices(const Row& x) const {
    const model::MoeConfig& m = config_.moe;
    const Row logits = product("router", router_input(x));
    Row scores(logits.size());
    for (size_t e = 0; e < logits.size(); ++e)
      scores[e] = m.rule.score == RouterScore::kSigmoid ? 1 / (1 + std::exp(-logits[e])) : std::exp(logits[e]);
    if (m.rule.score == RouterScore::kSoftmax) {
      const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
      for (double& s : scores) s /= sum;
    }
    std::vector<int64_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return scores[a] + bias(a) > scores[b] + bias(b); });
    double sum = 0;
    for (int64_t j = 0; j < m.top_k; ++j) sum += scores[order[j]];
    std::vector<std::pair<int64_t, double>> chosen;
    for (int64_t j = 0; j < m.top_k; ++j)
      chosen.emplace_back(order[j], m.rule.scale * scores[order[j]] / (m.rule.renormalize ? sum : 1));
    if (!m.expert_scale) return chosen;
    const Row factors = model_.values("blocks.0.moe.expert_scale");
    for (auto& [e, w] : chosen) w *= factors[static_cast<size_t>(e)];
    return chosen;
  }
  Row expected(int64_t n) const {
    const model::MoeConfig& m = config_.moe;
    const Row row = x(n);
    Row y(row.size());
    const auto add = [&](const Row& part, double factor) {
      for (size_t c = 0; c < y.size(); ++c) y[c] += factor * part[c];
    };
    for (const auto& [e, w] : choices(row)) {
      Row in = row;
      if (m.scale_input)
        for (double& v : in) v *= w;
      add(network(str_cat("experts.", e), in), m.scale_input ? 1 : w);
    }
    if (m.shared_d_ff > 0) {
      const double gate = m.shared_gate ? 1 / (1 + std::exp(-product("shared_gate", row)[0])) : 1;
      add(network("shared", row), gate);
    }
    return y;
  }
  /// What the branch computes: the block's output less its input, with the norm before the branch left out.
  std::vector<double> actual() {
    nn::ParameterStore store;
    comm::SelfComm alone("tensor");
    const tensor::TensorParallel tp{.group = &alone};
    model::Experts branch(config_, 0, tp);
    branch.add_inputs(store);
    branch.add_outputs(store);
    const Ctx ctx = model_.ctx();
    store.allocate(ctx, false);
    for (const auto& ref : store.sharded_tensors()) {
      const Row values = model_.values(ref.tensor->name);
      ctx.backend.write(values.data(), nn::ParameterStore::of(store.values(), ref).mut_view(), ctx.stream);
    }
    for (const auto& buffer : store.buffers()) {
      Row values;
      for (int64_t e = 0; e < config_.moe.experts; ++e) values.push_back(bias(e));
      ctx.backend.write(values.data(), buffer->values.mut_view(), ctx.stream);
    }
    const Tensor rows = ctx.empty(DType::kFloat64, {kRows, config_.d_model});
    ctx.backend.write(x_.data(), rows.mut_view(), ctx.stream);
    const model::BatchView batch{.B = 2, .T = 7};
    const model::LayerTables tables;
    const ScoreChange scores;
    const Var x{.value = rows};
    const model::Rows of{.batch = batch, .tables = tables, .scores = scores, .stream = &x};
    return model_.host(branch.forward(ctx, x, of, tp).value);
  }

 private:
  ModelConfig config_;
  TinyModel model_;
  std::vector<double> x_;
};

ModelConfig config_with(const model::MoeConfig& moe) {
  ModelConfig c = tiny_config();
  c.moe = moe;
  return c;
}

void expect_formula(const ModelConfig& c) {
  ExpertLayer layer(c);
  const std::vector<double> y = layer.actual();
  for (int64_t n = 0; n < ExpertLayer::kRows; ++n) {
    const Row row = layer.expected(n);
    for (int64_t i = 0; i < c.d_model; ++i)
      ASSERT_NEAR(y[static_cast<size_t>(n * c.d_model + i)], row[static_cast<size_t>(i)], 1e-12) << n << " " << i;
  }
}

TEST(Experts, AreWeightedNetworks) {
  model::MoeConfig moe{.experts = 5, .top_k = 2, .d_ff = 6};
  expect_formula(config_with(moe));
  moe.rule.renormalize = false;
  moe.shared_d_ff = 4;
  expect_formula(config_with(moe));
  moe.rule.score = RouterScore::kSigmoid;
  moe.shared_gate = true;
  moe.rule.scale = 1.7;
  expect_formula(config_with(moe));
  moe.scale_input = true;
  ModelConfig c = config_with(moe);
  c.bias.ffn = c.moe.router_bias = true;
  c.ffn.linear_offset = 1;
  expect_formula(c);
  c.ffn = {Activation::kSilu, false};
  expect_formula(c);
  c.moe.expert_scale = true;
  expect_formula(c);
  c.moe.router_norm = true;
  expect_formula(c);
}

// The bias is added where experts are chosen, and never to a weight.
TEST(Experts, ASelectionBiasChoosesAlone) {
  model::MoeConfig moe{.experts = 5, .top_k = 2, .d_ff = 6, .selection_bias = true};
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool renormalize : {false, true}) {
      moe.rule.score = score;
      moe.rule.renormalize = renormalize;
      expect_formula(config_with(moe));
    }
  }
}

// All experts chosen and all of them equal: one network.
TEST(Experts, OfEqualWeightsAreOneNetwork) {
  ModelConfig c = config_with({.experts = 3, .top_k = 3, .d_ff = 10});
  ModelConfig dense = c;
  dense.moe = {};
  TinyModel with(c, DType::kFloat64, 2, 7), one(dense, DType::kFloat64, 2, 7);
  testing::copy_weights(one, with);
  for (const char* layer : {"blocks.0.", "blocks.1."})
    for (const char* name : {"gate", "up", "down"})
      for (int64_t e = 0; e < 3; ++e)
        with.set(str_cat(layer, "moe.experts.", e, ".", name, ".weight"),
                 one.values(str_cat(layer, "ffn.", name, ".weight")));
  EXPECT_LT(testing::worst_difference(with.logits(), one.logits()), 1e-12);
}

// The gain of the block's norm changes what experts read; a router with a norm of its own reads the stream.
TEST(Experts, ARouterNormReadsTheStream) {
  const auto counts_with = [](bool router_norm, double gain) {
    ModelConfig c = config_with({.experts = 5, .top_k = 2, .d_ff = 6, .router_norm = router_norm});
    c.n_layers = 1;
    TinyModel m(c, DType::kFloat64, 4, 16);
    testing::scale(m, "blocks.0.norm2.weight", gain, 0, 6);
    m.store().expert_counts().begin_step(m.ctx());
    m.loss_and_gradients(m.ctx());
    return m.host(m.store().expert_counts().values());
  };
  EXPECT_EQ(counts_with(true, 1), counts_with(true, -3));
  EXPECT_NE(counts_with(false, 1), counts_with(false, -3));
}

// With experts that give nothing, and with a dense network that gives nothing.
TEST(Experts, BesideADenseNetworkEachHasItsNorm) {
  ModelConfig c = config_with({.experts = 3, .top_k = 2, .d_ff = 6, .beside_ffn = true});
  c.norm.placement = model::NormPlacement::kSandwich;
  c.n_layers = 1;
  TinyModel both(c, DType::kFloat64, 2, 7);
  const std::string norm_out = "blocks.0.moe.norm_out.weight", ffn_out = "blocks.0.ffn.norm_out.weight";
  const Row gains(static_cast<size_t>(c.d_model), 1.0), none(gains.size(), 0.0);
  both.set(norm_out, none);
  const std::vector<double> dense = both.logits();
  testing::scale(both, "blocks.0.ffn.down.weight", 3);
  EXPECT_LT(testing::worst_difference(both.logits(), dense), 1e-4) << "the norm takes the size of the network's output";
  testing::scale(both, "blocks.0.moe.norm_in.weight", -2, 0, 5);
  EXPECT_LT(testing::worst_difference(both.logits(), dense), 1e-4) << "experts that give nothing";
  both.set(norm_out, gains);
  const std::vector<double> sum = both.logits();
  EXPECT_GT(testing::worst_difference(sum, dense), 1e-3);
  both.set(ffn_out, none);
  const std::vector<double> experts = both.logits();
  EXPECT_GT(testing::worst_difference(sum, experts), 1e-3);
  testing::scale(both, "blocks.0.ffn.up.weight", 5);
  EXPECT_EQ(both.logits(), experts);
  testing::scale(both, "blocks.0.norm2.weight", 5, 0, 4);
  EXPECT_EQ(both.logits(), experts) << "which have a norm of their own";
  testing::scale(both, "blocks.0.moe.norm_in.weight", -2, 0, 5);
  EXPECT_NE(both.logits(), experts);
  ModelConfig dense_model = c;
  dense_model.moe = {};
  EXPECT_EQ(TinyModel(dense_model, DType::kFloat64, 2, 7).store().find(ffn_out), nullptr);
}

/// Loss, balance loss and z-loss, each with its factor.
double objective(TinyModel& m, Tape& tape) {
  Ctx ctx = m.ctx();
  ctx.tape = &tape;
  m.store().sums().begin_step(ctx);
  double value = m.loss(ctx);
  const ModelConfig& c = m.stage().config();
  const std::vector<double> sums = m.host(m.store().sums().values());
  const std::vector<nn::LayerMetric>& declared = m.store().sums().declared();
  const double each = m.scalars().inv_tokens / static_cast<double>(c.expert_layers());
  for (size_t i = 0; i < declared.size(); ++i) {
    if (declared[i].metric == "moe_balance") value += c.moe.balance_coef * each * sums[i];
    if (declared[i].metric == "moe_z") value += c.moe.z_coef * each * sums[i];
  }
  return value;
}

/// Per sequence, or from counts of a previous step that are not those of this one.
struct ObjectiveCase {
  RouterScore score;
  Balance balance;
};

class ExpertObjective : public ::testing::TestWithParam<ObjectiveCase> {};

TEST_P(ExpertObjective, HasTheGradientOfItsDifferences) {
  const auto [score, balance] = GetParam();
  {
    TinyModel m(config_with({.experts = 5,
                             .top_k = 2,
                             .d_ff = 6,
                             .rule = {.score = score},
                             .selection_bias = balance == Balance::kPrevious,
                             .balance = balance,
                             .balance_coef = 0.7,
                             .z_coef = 0.3}),
                DType::kFloat64, 2, 7);
    for (const auto& buffer : m.store().buffers())
      m.set(buffer->tensor.name,
            buffer->use == nn::BufferUse::kTraining ? Row{9, 1, 4, 0, 2} : Row{0, 0.2, 0, 0, -0.1});
    {
      Tape tape(m.backend(), m.ctx().stream);
      m.store().begin_step();
      objective(m, tape);
      tape.backward();
    }
    for (const char* name : {"blocks.0.moe.router.weight", "blocks.1.moe.router.weight", "blocks.0.attn.v.weight",
                             "blocks.0.moe.experts.2.up.weight", "embed.tokens.weight"}) {
      const Row gradient = m.gradient(name), values = m.values(name);
      for (size_t i = 0; i < values.size(); i += 7) {
        const auto moved = [&](double by) {
          Row w = values;
          w[i] += by;
          m.set(name, w);
          Tape tape(m.backend(), m.ctx().stream);
          return objective(m, tape);
        };
        constexpr double kStep = 1e-5;
        const double slope = (moved(kStep) - moved(-kStep)) / (2 * kStep);
        EXPECT_NEAR(gradient[i], slope, 1e-7 * std::max(1.0, std::abs(slope))) << name << " " << i;
      }
      m.set(name, values);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Experts, ExpertObjective,
                         ::testing::Values(ObjectiveCase{RouterScore::kSoftmax, Balance::kSequence},
                                           ObjectiveCase{RouterScore::kSigmoid, Balance::kSequence},
                                           ObjectiveCase{RouterScore::kSoftmax, Balance::kPrevious},
                                           ObjectiveCase{RouterScore::kSigmoid, Balance::kPrevious}));

TEST(Experts, BeginWithValuesOfTheirOwn) {
  const TinyModel m(config_with({.experts = 5, .top_k = 2, .d_ff = 6}), DType::kFloat64, 2, 7);
  std::map<Row, std::string> seen;
  for (const auto& ref : m.store().sharded_tensors()) {
    const std::string& name = ref.tensor->name;
    if (name.find(".experts.") == name.npos) continue;
    const auto [at, is_new] = seen.emplace(m.values(name), name);
    EXPECT_TRUE(is_new) << name << " begins as " << at->second;
  }
  EXPECT_EQ(seen.size(), 2U * 5 * 3);
}

// The second run of a recomputed block chooses nothing anew, whatever would choose otherwise by then.
TEST(Experts, ARecomputationTakesTheChoicesOfTheFirstRun) {
  const auto gradients_with = [](const Row& bias_in_backward) {
    ModelConfig c = config_with({.experts = 5, .top_k = 2, .d_ff = 6, .selection_bias = true});
    c.n_layers = 1;
    TinyModel m(c, DType::kFloat64, 2, 7);
    Tape tape(m.backend(), m.ctx().stream);
    Ctx ctx = m.ctx();
    ctx.tape = &tape;
    ctx.recompute = Recompute::kBlock;
    m.store().begin_step();
    m.store().expert_counts().begin_step(ctx);
    m.loss(ctx);
    m.set("blocks.0.moe.router.selection_bias", bias_in_backward);
    tape.backward();
    Row all = m.host(m.store().expert_counts().values());
    for (const char* name : {"moe.router.weight", "moe.experts.0.up.weight", "attn.v.weight"}) {
      const Row of_one = m.gradient(str_cat("blocks.0.", name));
      all.insert(all.end(), of_one.begin(), of_one.end());
    }
    return all;
  };
  EXPECT_EQ(gradients_with({9, 0, 0, 5, 0}), gradients_with(Row(5, 0.0)));
}

// The balance loss is 1 if every sequence is balanced, and more if only all sequences together are.
TEST(Experts, BalanceIsCountedBySequence) {
  // One expert a token, by the sign of its first column; rows of a sequence alike or alternating.
  const auto balance_of = [](bool alternating) {
    ModelConfig c = config_with({.experts = 2, .top_k = 1, .d_ff = 4});
    c.n_layers = 1;
    TinyModel m(c, DType::kFloat64, 2, 6);
    for (size_t n = 0; n < m.ids().size(); ++n) m.ids()[n] = static_cast<int32_t>(alternating ? n % 2 : n / 6);
    m.sort();
    // Ids 0 and 1 are opposite rows, and attention adds nothing.
    Row table = m.values("embed.tokens.weight");
    for (int64_t i = 0; i < c.d_model; ++i) table[c.d_model + i] = -table[i];
    m.set("embed.tokens.weight", table);
    testing::scale(m, "blocks.0.attn.out.weight", 0);
    Row router(static_cast<size_t>(2 * c.d_model));
    for (int64_t i = 0; i < c.d_model; ++i) router[i] = 40 * table[i];
    m.set("blocks.0.moe.router.weight", router);
    Tape tape(m.backend(), m.ctx().stream);
    Ctx ctx = m.ctx();
    ctx.tape = &tape;
    m.store().sums().begin_step(ctx);
    m.loss(ctx);
    const auto& declared = m.store().sums().declared();
    EXPECT_EQ(declared[0].metric, "moe_balance");
    return m.host(m.store().sums().values())[0] * m.scalars().inv_tokens;
  };
  EXPECT_NEAR(balance_of(true), 1, 1e-6);
  EXPECT_NEAR(balance_of(false), 2, 1e-6);
}

}  // namespace
}  // namespace ashlar
