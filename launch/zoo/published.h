#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/config/run_config.h"

/// The published models of configs/zoo, built into the program: options that they use, comparison with a configuration.
namespace ashlar::zoo {

/// A file of configs/zoo.
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

/// All published models, resolved, ordered by id.
std::vector<Published> published_models();

/// Returns one of them; the input error names those with a similar id.
const PublishedText& published_text(std::string_view id);
/// Finds a model in any list of texts; `where` begins the error.
const PublishedText& text_of(std::span<const PublishedText> all, std::string_view id, std::string_view where);

/// The first line is `# NAME. Source: WHERE.`; this is NAME.
inline constexpr std::string_view kSource = ". Source: ";
std::string title_of(const PublishedText& text);

/// Overrides (`section.key=value`) that make a model small enough to train in seconds; every option is kept. Rules:
/// d_model 32, 4 heads of 8 (of 12 if n_heads * head_dim is not d_model); as many KV heads as heads, 2 if fewer, or
/// one; d_ff 2.5 d_model if gated, else 4 d_model; embed_dim in its ratio to d_model; 4 layers, or one full cycle of
/// windows or bases. A sequence has 32 tokens; windows, tables and original positions keep their ratio to it (windows
/// at least 4 tokens). The vocabulary is the dataset's, padded so that up to 8 ranks divide it. 30 steps of 8 sequences
/// at a peak rate of 0.005.
std::vector<std::string> tiny_twin(const config::RunConfig& config);

}  // namespace ashlar::zoo
