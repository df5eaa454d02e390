#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hf/family.h"
#include "parallel/model/model_config.h"

namespace ashlar::hf {

/// What a config.json says besides the model itself, kept so that an export can say it again.
struct HfExtras {
  int64_t max_positions = 0;  ///< longest context it was made for; no part of a model with rotary positions
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  /// Those of generation_config.json, which `generate` of transformers stops at; empty: the same.
  std::vector<int64_t> generation_eos_token_ids;
  std::optional<int64_t> pad_token_id;
  bool operator==(const HfExtras&) const = default;
};

/// A model of one Hugging Face class.
struct HfConfig {
  const Family* family = nullptr;
  model::ModelConfig model;
  HfExtras extras;
  /// What a reader of the file may not expect: sizes that the class default filled in, keys that have no effect in
  /// this class. One text each, to be printed.
  std::vector<std::string> notes;
};

/// Reads the text of a config.json, spelt as transformers 4 or 5 spells it. `name` is the file in errors.
/// Every value that the model axes do not cover is refused with its key (exit code 2), all of them in one error, and so
/// is every key whose meaning is unknown: it could change the result. `ignored_keys` are those that the user vouches
/// for. Source: the configuration and modeling files of transformers 5.23; section 7 of the axes reference.
HfConfig parse_hf_config(const std::string& json, const std::string& name,
                         const std::vector<std::string>& ignored_keys = {});

/// The eos_token_id of the text of a generation_config.json: one or a list; empty when it says none. Input error naming
/// the file for a text that is none.
std::vector<int64_t> parse_generation_eos(const std::string& json, const std::string& name);

/// The same model with the shortest cycles of windows and of rotary bases, what layers of one kind have said in one
/// way, and no temperature of queries where it is one: two models that are the same by layer compare as equal.
model::ModelConfig with_shortest_cycle(model::ModelConfig config);

/// Why a class cannot express a model: one text for each axis that stands in the way, e.g. `norm.type = rmsnorm:
/// GPT2LMHeadModel has layernorm`. Empty when it can.
std::vector<std::string> obstacles(const Family& family, const model::ModelConfig& config);

/// The model as a class holds it: with the biases and norm vectors that the class always has. Where the model has none
/// they are zeros, and gains ones, which changes no number; obstacles() that remain are real ones.
model::ModelConfig completed(const Family& family, const model::ModelConfig& config);

/// True when tensor `name` of a completed model is one that `config` does not have.
bool is_completion(const model::ModelConfig& config, std::string_view name);

/// The class to export as: `wanted` when given, else the first of families() that can express the model as it is, else
/// the first that can express it completed. Throws an input error that names the axes in the way (of the wanted class,
/// or of the nearest one).
const Family& choose_family(const model::ModelConfig& config, const Family* wanted);

/// The text of the config.json that transformers reads to the same model; both spellings of the rotary keys are
/// written, so that version 4 and 5 agree. `dtype` as torch names it: "float32", "bfloat16", "float16", "float64".
/// Requires obstacles() to be empty. max_positions must be positive (input error).
std::string write_hf_config(const HfConfig& config, std::string_view dtype);

}  // namespace ashlar::hf
