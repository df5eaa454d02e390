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
  /// eos_token_id of generation_config.json, which stops `generate` of transformers; empty: the same ids.
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

/// Reads the text of a config.json, spelt as transformers 4 or 5 spells it. `name` is the file in errors.
/// Every value that no setting of the model covers is an error (exit code 2) that names its key; all such values are in
/// one error. So is every unknown key, because it could change the result, unless the user lists it in `ignored_keys`.
/// Source: the configuration and modeling files of transformers 5.23.
HfConfig parse_hf_config(const std::string& json, const std::string& name,
                         const std::vector<std::string>& ignored_keys = {});

/// The eos_token_id of a generation_config.json, one id or a list; empty when there is none. Input error that names the
/// file for a text that is no generation_config.json.
std::vector<int64_t> parse_generation_eos(const std::string& json, const std::string& name);

/// Returns the model in a canonical form: the shortest cycles of windows and rotary bases, one spelling for each
/// setting of a kind of layers, no query temperature that is 1. Models with the same layers then compare as equal.
model::ModelConfig with_shortest_cycle(model::ModelConfig config);

/// Returns why a family cannot have a model: one text for each setting in which they differ, e.g. `norm.type = rmsnorm:
/// GPT2LMHeadModel has layernorm`. Empty when it can.
std::vector<std::string> obstacles(const Family& family, const model::ModelConfig& config);

/// The model with the biases and norm weights that the family always has. Those that the model lacks are added as zeros
/// (gains as ones), which changes no result; obstacles() of the completed model cannot be removed.
model::ModelConfig completed(const Family& family, const model::ModelConfig& config);

/// True when tensor `name` of the completed model is missing in `config`.
bool is_completion(const model::ModelConfig& config, std::string_view name);

/// The family to export as: `wanted` when not null, else the first of families() that can have the model as it is, else
/// the one that can have it completed. Input error when there is none; it names the settings in which the model and the
/// wanted family, or the nearest one, differ.
const Family& choose_family(const model::ModelConfig& config, const Family* wanted);

/// The text of the config.json that transformers reads to the same model; both spellings of the rotary keys are
/// written, so that version 4 and 5 agree. `dtype` as torch names it: "float32", "bfloat16", "float16", "float64".
/// Requires obstacles() to be empty. max_positions must be positive (input error).
std::string write_hf_config(const HfConfig& config, std::string_view dtype);

}  // namespace ashlar::hf
