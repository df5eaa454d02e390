#include "launch/hf/common_keys.h"

#include <nlohmann/json.hpp>

namespace ashlar::hf {
namespace {

std::optional<int64_t> token_id(JsonReader& reader, const char* key) {
  const nlohmann::json* value = reader.raw(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) {
    reader.refuse(key, "expected an integer or null; correct this key");
    return std::nullopt;
  }
  return value->get<int64_t>();
}

}  // namespace

std::vector<int64_t> token_ids(JsonReader& reader, const char* key) {
  const nlohmann::json* value = reader.raw(key);
  std::vector<int64_t> ids;
  if (value == nullptr) return ids;
  if (value->is_number_integer()) return {value->get<int64_t>()};
  bool good = value->is_array();
  for (size_t i = 0; good && i < value->size(); ++i) {
    good = (*value)[i].is_number_integer();
    if (good) ids.push_back((*value)[i].get<int64_t>());
  }
  if (!good) reader.refuse(key, "expected an integer, a list of integers or null; correct this key");
  return ids;
}

void read_common_keys(JsonReader& reader, HfConfig& out) {
  out.extras.bos_token_id = token_id(reader, "bos_token_id");
  out.extras.eos_token_ids = token_ids(reader, "eos_token_id");
  out.extras.pad_token_id = token_id(reader, "pad_token_id");

  // The following keys would change the results of any class.
  for (const char* key : {"is_encoder_decoder", "add_cross_attention"}) {
    if (reader.boolean({key}, false))
      reader.refuse(key, "expected false: cross-attention is not supported; use another model");
  }
  if (!reader.boolean({"is_causal"}, true))
    reader.refuse("is_causal", "expected true: only causal attention is supported; use another model");
  if (reader.raw("quantization_config") != nullptr)
    reader.refuse("quantization_config",
                  "expected null: quantised weights are not supported; use the unquantised weights");
  if (!reader.was_read("per_layer_config") && reader.raw("per_layer_config") != nullptr)
    reader.refuse("per_layer_config", "expected null: the class has no settings per layer; remove this key");
  if (const nlohmann::json* pruned = reader.raw("pruned_heads"); pruned != nullptr && !pruned->empty()) {
    reader.refuse("pruned_heads", "expected null: pruned heads are not supported; use another model");
  }
}

}  // namespace ashlar::hf
