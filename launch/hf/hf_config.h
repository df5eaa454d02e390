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
  int64_t max_positions = 0;  ///< longest context in tokens; ModelConfig has it for learned positions only
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  /// eos_token_id of generation_config.json, at which transformers' generate() stops. Empty: the same as eos_token_ids.
  std::vector<int64_t> generation_eos_token_ids;
  std::optional<int64_t> pad_token_id;
  bool operator==(const HfExtras&) const = default;
};

/// A model and its Hugging Face family.
struct HfConfig {
  const Family* family = nullptr;
  model::ModelConfig model;
  HfExtras extras;
  bool is_part = false;  ///< read from the text_config of Family::whole
  /// Number of blocks after the last one that the files may have, which predict further tokens. Import leaves them out.
  int64_t further_layers = 0;
  /// Facts about the file that the user may not expect: sizes taken from the defaults of the class, keys without effect
  /// in this class. One line each; the caller prints them.
  std::vector<std::string> notes;
};

/// Reads the text of a config.json with the keys of transformers 4 or 5; `name` is the name of the file in errors. A
/// single error (exit code 2) lists every key whose value is not supported. It also lists every unknown key that is not
/// in `ignored_keys`, because an unknown key could change the result. Source: the configuration and modeling files of
/// transformers 5.23.
HfConfig parse_hf_config(const std::string& json, const std::string& name,
                         const std::vector<std::string>& ignored_keys = {});

/// Returns the eos_token_id of a generation_config.json, which may be one id or a list; empty if the key is absent.
/// Throws an input error that names the file if the text is not a generation_config.json.
std::vector<int64_t> parse_generation_eos(const std::string& json, const std::string& name);

/// Returns the model in a canonical form, so that models with the same layers compare as equal: the shortest cycles of
/// windows and rotary bases, the global_* settings of layers with full attention only if they differ from the settings
/// of layers with a window, a list of the layers without experts, and defaults for settings without effect.
model::ModelConfig with_shortest_cycle(model::ModelConfig config);

/// Returns why a family cannot represent a model: one text for each setting that differs, e.g. `norm.type = rmsnorm:
/// GPT2LMHeadModel requires layernorm`. Empty if the family can represent the model.
std::vector<std::string> obstacles(const Family& family, const model::ModelConfig& config);

/// Returns the model plus the biases and norm weights that the family always has. An export writes the added biases as
/// zeros and the added norm weights as ones, which changes no result. If obstacles() of the completed model is not
/// empty, the family cannot represent the model.
model::ModelConfig completed(const Family& family, const model::ModelConfig& config);

/// True if completed() has added the tensor `name`, i.e. if the model `config` does not have this tensor of the
/// completed model.
bool is_completion(const model::ModelConfig& config, std::string_view name);

/// Chooses the family for an export: `wanted` if not null, else the first of families() that can represent the model as
/// it is, else the first that can represent the completed model. If there is none, an input error names the settings in
/// which the model differs from the wanted or the nearest family.
const Family& choose_family(const model::ModelConfig& config, const Family* wanted);

/// Returns the text of a config.json from which transformers builds the same model. The rotary keys are written twice:
/// in the form of transformers 4 and in that of transformers 5. `dtype` is torch's name: "float32", "bfloat16",
/// "float16" or "float64". Requires obstacles() to be empty. Throws an input error if max_positions is not positive,
/// except for learned positions.
std::string write_hf_config(const HfConfig& config, std::string_view dtype);

}  // namespace ashlar::hf
