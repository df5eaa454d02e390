// What a model with experts must satisfy: each error names its key, what was expected and what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/model/model_constraints.h"
#include "parallel/model/slices.h"

namespace ashlar::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelConfig with(const std::function<void(MoeConfig&)>& change) {
  ModelConfig c;
  c.d_model = 32;
  c.n_layers = 4;
  c.n_heads = c.n_kv_heads = 4;
  c.head_dim = c.rope.dims = 8;
  c.d_ff = 64;
  c.vocab_size = 100;
  c.attn.scale = 0.35;
  c.moe = {.experts = 8, .top_k = 2, .d_ff = 24};
  change(c.moe);
  return c;
}
std::vector<std::string> errors_of(const std::function<void(MoeConfig&)>& change) {
  return constraint_errors(with(change));
}

TEST(MoeConstraints, AcceptWhatPublishedModelsHave) {
  EXPECT_THAT(errors_of([](MoeConfig&) {}), IsEmpty());
  EXPECT_THAT(errors_of([](MoeConfig& m) {
                m.rule.score = RouterScore::kSigmoid;
                m.rule.groups = 4;
                m.rule.top_groups = 2;
                m.first_layer = 1;
                m.shared_d_ff = 24;
                m.shared_gate = true;
              }),
              IsEmpty());
}

TEST(MoeConstraints, NameTheKeyAndWhatWouldDo) {
  const auto one = [](const std::function<void(MoeConfig&)>& change, const char* first, const char* second) {
    EXPECT_THAT(errors_of(change), ElementsAre(::testing::AllOf(HasSubstr(first), HasSubstr(second))));
  };
  one([](MoeConfig& m) { m.top_k = 9; }, "moe.top_k = 9: expected 1 to moe.experts = 8", "lower moe.top_k");
  one([](MoeConfig& m) { m.rule.groups = 3; }, "moe.groups = 3: expected a divisor of moe.experts = 8",
      "change moe.groups");
  one(
      [](MoeConfig& m) {
        m.rule.groups = 4;
        m.top_k = 3;
      },
      "moe.top_groups = 1: expected", "raise moe.top_groups");
  one([](MoeConfig& m) { m.rule.groups = m.rule.top_groups = 8; }, "moe.group_score = \"top_two\"",
      "moe.group_score = \"max\"");
  one([](MoeConfig& m) { m.first_layer = 4; }, "at least one layer with experts, got none of 4", "moe.first_layer = 4");
  one(
      [](MoeConfig& m) {
        m.dense_layers = {2, 1};
      },
      "moe.dense_layers = a list with 1", "ascending layers from 0 to 3");
  one([](MoeConfig& m) { m.shared_gate = true; }, "moe.shared_gate = true", "set moe.shared_d_ff");
  one([](MoeConfig& m) { m.rule.scale = 0; }, "moe.scale = 0", "above 0");
}

TEST(MoeConstraints, RatesAndFactorsAreNotNegative) {
  using Member = double& (*)(MoeConfig&);
  const std::pair<const char*, Member> keys[] = {
      {"moe.sum_floor", [](MoeConfig& m) -> double& { return m.rule.sum_floor; }},
      {"moe.sum_eps", [](MoeConfig& m) -> double& { return m.rule.sum_eps; }},
      {"moe.bias_rate", [](MoeConfig& m) -> double& { return m.bias_rate; }},
      {"moe.balance_coef", [](MoeConfig& m) -> double& { return m.balance_coef; }},
      {"moe.z_coef", [](MoeConfig& m) -> double& { return m.z_coef; }}};
  for (const auto& [key, member] : keys) {
    EXPECT_THAT(errors_of([&](MoeConfig& m) { member(m) = 0; }), IsEmpty()) << key;
    EXPECT_THAT(errors_of([&](MoeConfig& m) { member(m) = -0.5; }),
                ElementsAre(HasSubstr(std::string(key) + " = -0.5: expected 0 or more; 0 turns it off")));
    EXPECT_THAT(errors_of([&](MoeConfig& m) { member(m) = std::nan(""); }), ElementsAre(HasSubstr(key)));
  }
}

TEST(MoeConstraints, TensorRanksDivideTheWidthsThatLayersHave) {
  ModelConfig c = with([](MoeConfig& m) { m.d_ff = 26; });
  c.d_ff = 66;
  EXPECT_THAT(slicing_problems(c, 4), ElementsAre(HasSubstr("moe.d_ff = 26")));
  c.moe.d_ff = 24;
  EXPECT_THAT(slicing_problems(c, 4), IsEmpty()) << "no layer is dense";
  c.moe.first_layer = 1;
  EXPECT_THAT(slicing_problems(c, 4), ElementsAre(HasSubstr("model.d_ff = 66")));
}

TEST(MoeConstraints, LayersWithExperts) {
  const auto layers = [](const std::function<void(MoeConfig&)>& change) {
    const ModelConfig c = with(change);
    std::vector<int64_t> found;
    for (int64_t i = 0; i < c.n_layers; ++i)
      if (c.has_experts(i)) found.push_back(i);
    EXPECT_EQ(c.expert_layers(), std::ssize(found));
    return found;
  };
  EXPECT_THAT(layers([](MoeConfig&) {}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(layers([](MoeConfig& m) { m.every = 2; }), ElementsAre(1, 3));
  EXPECT_THAT(layers([](MoeConfig& m) {
                m.first_layer = 1;
                m.dense_layers = {2};
              }),
              ElementsAre(1, 3));
  EXPECT_THAT(layers([](MoeConfig& m) { m.experts = 0; }), IsEmpty());
}

}  // namespace
}  // namespace ashlar::model
