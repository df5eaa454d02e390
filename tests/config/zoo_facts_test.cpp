// configs/zoo against facts that were gathered apart from it (zoo_facts.txt): every axis of every model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "launch/zoo/comparison.h"

namespace ashlar::zoo {
namespace {

using Facts = std::map<std::string, std::string>;
using model::ModelConfig;
using model::RopeScaling;

/// By model, each with what the first row says of all.
std::map<std::string, Facts> expected_facts() {
  std::map<std::string, Facts> all;
  Facts usual;
  std::ifstream file(ASHLAR_SOURCE_DIR "/tests/config/zoo_facts.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string id, word;
    words >> id;
    Facts facts = usual;
    while (words >> word) facts[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    if (id == "default") {
      usual = facts;
      continue;
    }
    for (const auto& [key, other] : {std::pair("embed_dim", "d_model"),
                                     {"vocab_padded", "vocab_raw"},
                                     {"n_kv_heads", "n_heads"},
                                     {"global_n_kv_heads", "n_kv_heads"},
                                     {"global_head_dim", "head_dim"}})
      if (!facts.contains(key)) facts[key] = facts.at(other);
    all[id] = facts;
  }
  return all;
}

/// The base of a layer's rotation, 0 where it does not rotate.
double base_of(const ModelConfig& m, bool full) {
  const std::vector<int64_t> windows = model::layer_windows(m);
  for (size_t i = 0; i < windows.size(); ++i) {
    if ((windows[i] < 0) != full) continue;
    if (!m.rope.base_cycle.empty()) return m.rope.base_cycle[i % m.rope.base_cycle.size()];
    if (full && !m.rope.global_enabled) return 0;
    return full ? m.rope.base : m.rope.local_base.value_or(m.rope.base);
  }
  return base_of(m, !full);  // all layers are of the other kind
}

std::string text(double x) { return absl::StrFormat("%.10g", x); }
std::string text(int64_t x) { return std::to_string(x); }
std::string text(bool x) { return x ? "true" : "false"; }
std::string text(const std::optional<double>& x) { return x ? text(*x) : "none"; }

Facts facts_of(const config::RunConfig& c) {
  const ModelConfig& m = c.model;
  Facts f = {
      {"d_model", text(m.d_model)},
      {"n_layers", text(m.n_layers)},
      {"n_heads", text(m.n_heads)},
      {"n_kv_heads", text(m.n_kv_heads)},
      {"head_dim", text(m.head_dim)},
      {"d_ff", text(m.d_ff)},
      {"embed_dim", text(m.table_width())},
      {"vocab_raw", text(m.vocab_size)},
      {"vocab_padded", text(m.vocab_padded())},
      {"max_seq", text(c.train.sequence_length)},
      {"norm_type", std::string(name_of(m.norm.variant.type))},
      {"norm_affine", std::string(name_of(m.norm.affine))},
      {"norm_unit_offset", text(m.norm.variant.unit_offset)},
      {"norm_eps", text(m.norm.variant.eps)},
      {"norm_placement", std::string(name_of(m.norm.placement))},
      {"norm_final", text(m.norm.final)},
      {"norm_embed", text(m.norm.embed)},
      {"block", std::string(name_of(m.block.topology))},
      {"parallel_norms", text(int64_t{m.block.parallel_norms})},
      {"bias_qkv", text(m.bias.qkv)},
      {"bias_attn_out", text(m.bias.attn_out)},
      {"bias_ffn", text(m.bias.ffn)},
      {"bias_lm_head", text(m.bias.lm_head)},
      {"ffn_act", std::string(name_of(m.ffn.act))},
      {"ffn_gated", text(m.ffn.gated)},
      {"ffn_clamp", text(m.ffn.clamp)},
      {"ffn_linear_offset", text(m.ffn.linear_offset)},
      {"pos_type", std::string(name_of(m.pos.type))},
      {"pos_learned_offset", text(m.pos.learned_offset)},
      {"attn_scale", text(m.attn.scale)},
      {"qk_norm", std::string(name_of(m.qk_norm.kind))},
      {"qk_norm_type", std::string(name_of(m.qk_norm.type))},
      {"v_norm", text(m.attn.v_norm)},
      {"attn_softcap", text(m.attn.softcap)},
      {"attn_clip_qkv", text(m.attn.clip_qkv)},
      {"windows", absl::StrJoin(m.attn.window_cycle, ",")},
      {"last_layer_full", text(m.attn.last_layer_full)},
      {"dropout_embed", text(m.dropout.embed)},
      {"dropout_attn", text(m.dropout.attn)},
      {"dropout_resid", text(m.dropout.resid)},
      {"embed_scale", text(m.embed_scale)},
      {"tie", text(m.tied)},
      {"logit_scale", text(m.logit_scale)},
      {"final_softcap", text(m.softcap)},
      {"norm_head", text(m.norm_rows)},
      {"z_loss", text(m.loss.z_coef)},
      {"z_loss_kind", std::string(name_of(m.loss.z_kind))},
      {"global_head_dim", text(m.attn.global_head_dim.value_or(m.head_dim))},
      {"global_n_kv_heads", text(m.attn.global_n_kv_heads.value_or(m.n_kv_heads))},
      {"k_eq_v", text(m.attn.k_eq_v)},
      {"out_scalar", text(m.block.out_scalar)},
      {"sinks", text(m.attn.sinks)},
      {"window_kind", std::string(name_of(m.attn.window_kind))},
      {"qk_norm_order", std::string(name_of(m.qk_norm.order))},
      {"qk_norm_layers", std::string(name_of(m.qk_norm.layers))},
      {"experts", text(m.moe.experts)},
      {"attn_kind", std::string(name_of(m.attn.kind))},
      {"q_rank", text(m.attn.q_rank)},
      {"kv_rank", text(m.latent() ? m.attn.kv_rank : 0)},
      {"v_head_dim", text(m.attn.v_head_dim)},
  };
  if (m.moe.experts > 0) {
    f["top_k"] = text(m.moe.top_k);
    f["expert_d_ff"] = text(m.moe.d_ff);
    f["shared_d_ff"] = text(m.moe.shared_d_ff);
    f["router_score"] = name_of(m.moe.rule.score);
    f["renormalize"] = text(m.moe.rule.renormalize);
    f["scale_input"] = text(m.moe.scale_input);
    f["router_bias"] = text(m.moe.router_bias);
    f["groups"] = text(m.moe.rule.groups);
    f["top_groups"] = text(m.moe.rule.top_groups);
    f["first_expert_layer"] = text(m.moe.first_layer);
    f["route_scale"] = text(m.moe.rule.scale);
    f["route_eps"] = text(m.moe.rule.sum_eps);
    f["selection_bias"] = text(m.moe.selection_bias);
    f["router_norm"] = text(m.moe.router_norm);
    f["expert_scale"] = text(m.moe.expert_scale);
    f["beside_ffn"] = text(m.moe.beside_ffn);
  }
  if (m.pos.type != model::PosType::kRope) return f;
  f["rope_global"] = text(base_of(m, true));
  f["rope_local"] = text(base_of(m, false));
  if (m.rope.scaling != RopeScaling::kProportional)  // its pairs are those of a global head
    f["rope_fraction"] = text(static_cast<double>(m.rope.dims) / static_cast<double>(m.head_dim));
  f["rope_style"] = name_of(m.rope.style);
  f["rope_scaling"] = name_of(m.rope.scaling);
  if (m.rope.scaling == RopeScaling::kLinear) f["rope_scaling"] += ":" + text(m.rope.factor);
  f["scaled_layers"] = name_of(m.rope.scaled_layers);
  return f;
}

/// Numbers that agree as far as they are published, or the same word.
bool agree(const std::string& got, const std::string& expected) {
  if (got == expected) return true;
  char* end = nullptr;
  const double a = std::strtod(got.c_str(), &end);
  if (end == got.c_str() || *end != 0) return false;
  const double b = std::strtod(expected.c_str(), &end);
  if (end == expected.c_str() || *end != 0) return false;
  return std::abs(a - b) <= 1e-6 * std::abs(b);
}

TEST(ZooFacts, EveryAxisOfEveryModelIsAsPublished) {
  const std::map<std::string, Facts> expected = expected_facts();
  ASSERT_EQ(expected.size(), 71U);
  for (const Published& p : published_models()) {
    ASSERT_TRUE(expected.contains(p.id)) << p.id;
    const Facts& facts = expected.at(p.id);
    size_t compared = 0;
    for (const auto& [key, got] : facts_of(p.config)) {
      ASSERT_TRUE(facts.contains(key)) << p.id << " " << key;
      if (facts.at(key) == "?") continue;
      ++compared;
      EXPECT_TRUE(agree(got, facts.at(key)))
          << p.id << " " << key << ": got " << got << ", published " << facts.at(key);
    }
    EXPECT_GE(compared, 20U) << p.id;
  }
}

/// The table of `ashlar zoo uses`: each model stands with the value that is published of it, and with no other.
TEST(ZooFacts, WhoUsesWhatIsAsPublished) {
  const std::map<std::string, std::string> keys = {
      {"norm_type", "norm.type"},  {"norm_affine", "norm.affine"}, {"norm_placement", "norm.placement"},
      {"block", "block.topology"}, {"ffn_act", "ffn.act"},         {"ffn_gated", "ffn.gated"},
      {"pos_type", "pos.type"},    {"qk_norm", "attn.qk_norm"},    {"tie", "head.tie"},
      {"bias_qkv", "bias.qkv"},    {"norm_final", "norm.final"},   {"norm_unit_offset", "norm.unit_offset"}};
  const std::map<std::string, Facts> expected = expected_facts();
  const std::vector<Published> models = published_models();
  size_t compared = 0;
  for (const Uses& uses : usage_by_key(models)) {
    for (const auto& [fact, key] : keys) {
      if (uses.key != key) continue;
      for (const Published& p : models) {
        std::string value = expected.at(p.id).at(fact);
        if (value == "?") continue;
        if (value != "true" && value != "false") value = str_cat("\"", value, "\"");
        for (const Use& use : uses.values) {
          const bool stands = std::find(use.ids.begin(), use.ids.end(), p.id) != use.ids.end();
          EXPECT_EQ(stands, use.value == value) << p.id << " " << key << " = " << use.value;
        }
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, keys.size() * (models.size() - 1));
}

/// What nobody has published says so in its file.
TEST(ZooFacts, WhatIsNotPublishedIsMarked) {
  const std::map<std::string, std::string> keys = {
      {"norm_eps", "eps"}, {"rope_style", "style"}, {"attn_scale", "scale"}};
  const std::map<std::string, Facts> expected = expected_facts();
  size_t marked = 0;
  for (const PublishedText& text : published_texts()) {
    for (const auto& [fact, key] : keys) {
      const Facts& facts = expected.at(std::string(text.id));
      if (facts.at(fact) != "?" || (key == "style" && facts.at("pos_type") != "rope")) continue;
      std::istringstream lines{std::string(text.toml)};
      bool found = false;
      for (std::string line; std::getline(lines, line);)
        found = found || (line.starts_with(key + " = ") && line.find("# not published") != std::string::npos);
      EXPECT_TRUE(found) << text.id << " " << key;
      marked += found ? 1 : 0;
    }
  }
  EXPECT_GE(marked, 2U);
}

}  // namespace
}  // namespace ashlar::zoo
