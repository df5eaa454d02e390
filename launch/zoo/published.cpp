#include "launch/zoo/published.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "launch/config/schema.h"

namespace ashlar::zoo {

std::vector<Published> published_models() {
  std::vector<Published> models;
  for (const PublishedText& text : published_texts()) {
    Published p;
    p.id = text.id;
    // The first line is `# NAME. Source: ...`.
    const std::string_view line = text.toml.substr(0, text.toml.find('\n'));
    p.title = line.substr(2, line.find(". Source: ") - 2);
    p.config = config::resolve(config::parse_config(std::string(text.toml), str_cat("configs/zoo/", p.id, ".toml"), {}),
                               {.dataset_vocab_size = std::nullopt, .purpose = config::Purpose::kModel})
                   .config;
    p.parameters = model::count_parameters(p.config.model).total();
    models.push_back(std::move(p));
  }
  return models;
}

const PublishedText& published_text(std::string_view id) {
  const std::span<const PublishedText> all = published_texts();
  const auto at = std::find_if(all.begin(), all.end(), [&](const PublishedText& text) { return text.id == id; });
  if (at != all.end()) return *at;
  const std::string_view family = id.substr(0, 4);
  std::vector<std::string> similar;
  for (const PublishedText& text : all)
    if (text.id.starts_with(family) || config::edit_distance(text.id, id) <= 2) similar.emplace_back(text.id);
  throw input_error(
      "zoo", "there is no published model '", id, "'; ",
      similar.empty() ? "ashlar zoo lists them" : str_cat("did you mean ", absl::StrJoin(similar, " or "), "?"));
}

std::vector<std::string> tiny_twin(const model::ModelConfig& m) {
  std::vector<std::string> words;
  const auto set = [&](const char* key, const auto& value) { words.push_back(str_cat(key, "=", value)); };
  constexpr int64_t kHeads = 4, kHeadDim = 16, kWidth = kHeads * kHeadDim, kLength = 32;
  // Heads in the ratio of many, few or one KV head to all; widths that differ from d_model / n_heads still do.
  const int64_t kv = m.n_kv_heads == m.n_heads ? kHeads : m.n_kv_heads == 1 ? 1 : 2;
  const bool own_width = m.head_dim * m.n_heads != m.d_model;
  set("model.d_model", kWidth);
  set("model.n_heads", kHeads);
  set("model.n_kv_heads", kv);
  set("model.head_dim", own_width ? kHeadDim + 8 : kHeadDim);
  set("model.d_ff", m.ffn.gated ? kWidth * 5 / 2 : 4 * kWidth);
  set("model.n_layers", 4);
  if (m.pos.type == model::PosType::kLearned) set("pos.max_positions", kLength);
  set("train.sequence_length", kLength);
  return words;
}

}  // namespace ashlar::zoo
