#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/config/run_config.h"

/// The published models of configs/zoo, which are compiled into the program.
namespace ashlar::zoo {

/// A file of configs/zoo or configs/start.
struct PublishedText {
  std::string_view id;  ///< file name: "qwen3-8b"
  std::string_view toml;
};
std::span<const PublishedText> published_texts();

struct Published {
  std::string id, title;  ///< "qwen3-8b", "Qwen3 8B"
  config::RunConfig config;
  int64_t parameters = 0;
};

/// Resolves the configuration of a text, which is the file ID.toml of `folder`.
config::RunConfig config_of(const PublishedText& text, std::string_view folder, config::Purpose purpose);
/// Returns all published models, resolved, ordered by id.
std::vector<Published> published_models();

/// Returns the text of one published model. For an unknown id, throws an input error that suggests similar ids.
const PublishedText& published_text(std::string_view id);
/// Finds a model in a list of texts. For an unknown id, throws an input error with the prefix `where`.
const PublishedText& text_of(std::span<const PublishedText> all, std::string_view id, std::string_view where);

/// The first line of a text is `# NAME. Source: WHERE.`; title_of() returns NAME.
inline constexpr std::string_view kSource = ". Source: ";
std::string title_of(const PublishedText& text);

/// Overrides (`section.key=value`) that make a model small enough to train in seconds; every option is kept. Rules:
/// d_model 32; 4 heads of dimension 8, or of dimension 12 if n_heads * head_dim is not d_model; 4 KV heads if the model
/// has as many KV heads as query heads, 1 if it has one KV head, else 2; d_ff = 2.5 d_model if gated, else 4 d_model;
/// embed_dim in its ratio to d_model; at least 4 layers and one full cycle of windows or rotary bases. A sequence has
/// 32 tokens, and a table of learned positions 32 rows; windows (4 to 32 tokens) and rope.original_positions (8 to 32)
/// keep their ratio to the sequence length. The vocabulary is the dataset's, padded to a multiple of 8, so that up to 8
/// tensor ranks can share it. Training: 30 steps of 8 sequences at a peak learning rate of 0.005.
std::vector<std::string> tiny_twin(const config::RunConfig& config);

}  // namespace ashlar::zoo
