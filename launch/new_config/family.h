#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/config/run_config.h"

namespace ashlar::new_config {

/// A key of the architecture as a published model has it.
struct Option {
  std::string key;      ///< "norm.type"
  std::string value;    ///< TOML: "\"layernorm\""
  std::string comment;  ///< of the published file, or empty
};

/// The published model whose architecture a new configuration takes.
struct Family {
  std::string id, title;  ///< "llama3-8b", "LLaMA 3 8B"
  config::RunConfig config;
  int64_t parameters = 0, active = 0;  ///< of the published model; `active`: those that a token meets
  /// Keys that do not depend on the size, as the file of configs/zoo has them. Left out: sizes, vocabulary, dropout,
  /// and what stretches rotary positions beyond the trained context.
  std::vector<Option> options;
  std::vector<std::string> left_out;  ///< keys that stretch positions
};

/// Names that find_family() accepts beside the ids of the models: "llama3", "gpt2", ...
std::vector<std::string> family_names();

/// Returns the model of a family ("llama3") whose size is nearest to `parameters`, or the model with this id
/// ("llama3-70b"). Of families with dense models and models with experts, a dense one. Throws an input error that lists
/// the names, the nearest first, for an unknown name.
Family find_family(std::string_view name, int64_t parameters);

}  // namespace ashlar::new_config
