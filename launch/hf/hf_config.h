#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hf/family.h"
#include "parallel/model/model_config.h"

namespace ashlar::hf {

/// Values of a config.json that are not part of the model. They are kept so that an export can write them again.
struct HfExtras {
  int64_t max_positions = 0;  ///< longest context it was made for; rotary models have no such setting
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  /// eos_token_id of generation_config.json, at which transformers' generate() stops; empty: the same ids.
  std::vector<int64_t> generation_eos_token_ids;
  std::optional<int64_t> pad_token_id;
  bool operator==(const HfExtras&) const = default;
};

/// A model and its Hugging Face family.
struct HfConfig {
  const Family* family = nullptr;
  model::ModelConfig model;
  HfExtras extras;
  /// Notes that a reader of the file may not expect: sizes taken from the defaults of the class, keys that have no
  /// effect in this class. One line each, to be printed.
  std::vector<std::string> notes;
};

/// Reads the text of a config.json, spelt as transformers 4 or 5 spells it. `name` is the file in errors. One error
/// (exit code 2) names every key whose value the model has no setting for. It also names every unknown key that is not
/// in `ignored_keys`, because an unknown key could change the result. Source: the configuration and modeling files of
/// transformers 5.23.
HfConfig parse_hf_config(const std::string& json, const std::string& name,
                         const std::vector<std::string>& ignored_keys = {});

/// The eos_token_id of a generation_config.json, one id or a list; empty when there is none. An input error names the
/// file if the text is not a generation_config.json.
std::vector<int64_t> parse_generation_eos(const std::string& json, const std::string& name);

/// Returns the model in a canonical form: the shortest cycles of windows and rotary bases, one spelling for each
/// setting of a kind of layers, no query temperature that is 1. Models with the same layers then compare as equal.
model::ModelConfig with_shortest_cycle(model::ModelConfig config);

/// Returns why a family cannot have a model: one text for each setting that differs, e.g. `norm.type = rmsnorm:
/// GPT2LMHeadModel has layernorm`. Empty if the family can have the model.
std::vector<std::string> obstacles(const Family& family, const model::ModelConfig& config);

/// The model with the biases and norm weights that the family always has. Those that the model lacks are added as zeros
/// (gains as ones), which changes no result. If obstacles() of the completed model is not empty, the family cannot have
/// the model at all.
model::ModelConfig completed(const Family& family, const model::ModelConfig& config);

/// True when tensor `name` of the completed model is missing in `config`.
bool is_completion(const model::ModelConfig& config, std::string_view name);

/// Chooses the family for an export: `wanted` if not null, else the first of families() that can have the model as it
/// is, else the first that can have the completed model. If there is none, an input error names the settings in which
/// the model differs from the wanted or the nearest family.
const Family& choose_family(const model::ModelConfig& config, const Family* wanted);

/// The text of a config.json from which transformers makes the same model. The rotary keys are written in both
/// spellings, for version 4 and version 5. `dtype` as torch names it: "float32", "bfloat16", "float16", "float64".
/// Requires obstacles() to be empty. max_positions must be positive (input error).
std::string write_hf_config(const HfConfig& config, std::string_view dtype);

}  // namespace ashlar::hf
