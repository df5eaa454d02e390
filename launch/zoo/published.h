#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/config/run_config.h"

/// The published models of configs/zoo, which the program carries: who uses what, and how a configuration compares.
namespace ashlar::zoo {

/// A file of configs/zoo.
struct PublishedText {
  std::string_view id;  ///< of the file: "qwen3-8b"
  std::string_view toml;
};
std::span<const PublishedText> published_texts();

struct Published {
  std::string id, title;  ///< "qwen3-8b", "Qwen3 8B"
  config::RunConfig config;
  int64_t parameters = 0;
};

/// All of them, resolved, by the order of their ids.
std::vector<Published> published_models();

/// One of them; input error that names those with a similar id.
const PublishedText& published_text(std::string_view id);

/// What makes a configuration of the same kind small enough to train in seconds: the axes stay as they are, widths and
/// depth go. Overrides of `section.key=value`.
std::vector<std::string> tiny_twin(const model::ModelConfig& model);

}  // namespace ashlar::zoo
