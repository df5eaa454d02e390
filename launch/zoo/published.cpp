#include "launch/zoo/published.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/strings.h"
#include "launch/config/raw_values.h"
#include "launch/config/schema.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::zoo {

config::RunConfig config_of(const PublishedText& text, std::string_view folder, config::Purpose purpose) {
  const config::RawConfig raw =
      config::parse_config(std::string(text.toml), str_cat(folder, "/", text.id, ".toml"), {});
  return config::resolve(raw, {.dataset_vocab_size = std::nullopt, .purpose = purpose}).config;
}

std::vector<Published> published_models() {
  std::vector<Published> models;
  for (const PublishedText& text : published_texts()) {
    Published p;
    p.id = text.id;
    p.title = title_of(text);
    p.config = config_of(text, "configs/zoo", config::Purpose::kModel);
    p.parameters = model::count_parameters(p.config.model).total();
    models.push_back(std::move(p));
  }
  return models;
}

const PublishedText& text_of(std::span<const PublishedText> all, std::string_view id, std::string_view where) {
  const auto at = std::ranges::find_if(all, [&](const PublishedText& text) { return text.id == id; });
  if (at != all.end()) return *at;
  const std::string_view family = id.substr(0, 4);
  std::vector<std::string> similar;
  for (const PublishedText& text : all)
    if (text.id.starts_with(family) || is_slip(edit_distance(text.id, id), text.id, id)) similar.emplace_back(text.id);
  throw input_error(where, "expected the name of a listed model, got '", id, "'; ",
                    similar.empty() ? str_cat("ashlar ", where, " lists them")
                                    : str_cat("did you mean ", absl::StrJoin(similar, " or "), "?"));
}

const PublishedText& published_text(std::string_view id) { return text_of(published_texts(), id, "zoo"); }

std::string title_of(const PublishedText& text) {
  const std::string_view line = text.toml.substr(0, text.toml.find('\n'));
  return std::string(line.substr(2, line.find(kSource) - 2));
}

namespace {

/// `size` in the proportion to / from, rounded.
int64_t shrunk(int64_t size, int64_t from, int64_t to, int64_t least) {
  return std::max(least, (size * to + from / 2) / from);
}

/// Adds the overrides of a tiny twin's experts. A shared expert keeps its proportion to the others, since a class may
/// have one width for both.
void add_few_experts(const model::MoeConfig& moe, int64_t width, std::vector<std::string>& words) {
  const auto set = [&](const char* key, const auto& value) { words.push_back(str_cat("moe.", key, "=", value)); };
  set("experts", 4);
  set("top_k", std::min<int64_t>(moe.top_k, 2));
  const int64_t d_ff = moe.beside_ffn ? width / 2 : width * 3 / 4;
  set("d_ff", d_ff);
  if (moe.shared_d_ff > 0) set("shared_d_ff", shrunk(moe.shared_d_ff, moe.d_ff, d_ff, 1));
  if (moe.first_layer > 0) set("first_layer", 1);
  if (!moe.dense_layers.empty()) set("dense_layers", "[0]");
  if (moe.rule.groups > 1) set("groups", 2);
  if (moe.rule.groups > 1) set("top_groups", std::min<int64_t>(moe.rule.top_groups, 2));
}

}  // namespace

std::vector<std::string> tiny_twin(const config::RunConfig& config) {
  const model::ModelConfig& m = config.model;
  constexpr int64_t kHeads = 4, kWidth = 32, kLength = 32, kHeadDim = kWidth / kHeads, kFewKvHeads = 2;
  std::vector<std::string> words;
  const auto set = [&](const char* key, const auto& value) { words.push_back(str_cat(key, "=", value)); };

  set("model.d_model", kWidth);
  set("model.n_heads", kHeads);
  set("model.n_kv_heads", m.n_kv_heads == m.n_heads ? kHeads : m.n_kv_heads == 1 ? 1 : kFewKvHeads);
  const int64_t head_dim = m.head_dim * m.n_heads == m.d_model ? kHeadDim : kHeadDim + 4;
  set("model.head_dim", head_dim);
  // A layer that has experts and a dense FFN beside them is as small as one that has either.
  const bool both = m.moe.experts > 0 && m.moe.beside_ffn;
  set("model.d_ff", both ? kWidth : m.ffn.gated ? kWidth * 5 / 2 : 4 * kWidth);
  if (m.embed_dim) set("model.embed_dim", shrunk(*m.embed_dim, m.d_model, kWidth, 1));

  if (m.moe.experts > 0) add_few_experts(m.moe, kWidth, words);
  // At least 4 layers and one full cycle of windows or rotary bases, plus one layer if the last layer differs.
  const size_t cycle = std::max(m.attn.window_cycle.size(), m.rope.base_cycle.size());
  set("model.n_layers", std::max<int64_t>(4, static_cast<int64_t>(cycle) + (m.attn.last_layer_full ? 1 : 0)));

  const int64_t length = config.train.sequence_length;
  std::vector<int64_t> windows;
  for (const int64_t window : m.attn.window_cycle)
    windows.push_back(window < 0 ? window : shrunk(window, std::max(length, window), kLength, 4));
  if (windows != m.attn.window_cycle) set("attn.window_cycle", str_cat("[", absl::StrJoin(windows, ","), "]"));
  const int64_t global_head_dim = 2 * head_dim;
  if (m.attn.global_head_dim) set("attn.global_head_dim", global_head_dim);
  if (m.rope.global_dims)
    set("rope.global_dims", 2 * shrunk(*m.rope.global_dims / 2, m.attn.global_head_dim.value_or(m.head_dim),
                                       m.attn.global_head_dim ? global_head_dim : head_dim, 1));
  if (m.attn.global_n_kv_heads) set("attn.global_n_kv_heads", *m.attn.global_n_kv_heads < m.n_kv_heads ? 1 : kHeads);
  if (m.attn.v_head_dim > 0) set("attn.v_head_dim", kHeadDim - 4);
  if (m.attn.kind == model::AttentionKind::kMla) {
    set("rope.dims", kHeadDim / 2);
    set("attn.kv_rank", kWidth / 2);
    if (m.attn.q_rank > 0) set("attn.q_rank", kWidth / 2 - 8);
    // YaRN makes it a multiple of head_dim^-0.5, which the file gives as a number.
    const double multiple = m.attn.scale * std::sqrt(static_cast<double>(m.head_dim));
    if (std::abs(multiple - 1) > 1e-12)
      set("attn.scale", config::value_text(m.attn.scale * std::sqrt(static_cast<double>(m.head_dim) / head_dim)));
  }
  if (m.pos.type == model::PosType::kLearned) set("pos.max_positions", kLength);
  if (m.rope.original_positions > 0)
    set("rope.original_positions",
        shrunk(m.rope.original_positions, std::max(length, m.rope.original_positions), kLength, 8));

  set("vocab.size", "default");
  set("vocab.pad_to", 8);
  set("train.sequence_length", kLength);
  set("train.global_batch", 8);
  set("train.steps", 30);
  set("schedule.warmup_steps", 5);
  set("optimizer.lr", 0.005);
  return words;
}

}  // namespace ashlar::zoo
