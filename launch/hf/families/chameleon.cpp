// Only the text model is imported; the image tokenizer (vq_config, model.vqmodel) is left out. The norms have Llama's
// names, but with swin_norm they act on the outputs of the branches.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

using model::NormPlacement;

void swin_norm(model::ModelConfig& m, bool behind) {
  if (behind) m.norm.placement = NormPlacement::kOutput;
}

/// The ids of image tokens, whose logits the class masks. They are the entries of vocabulary_map whose names begin with
/// kBegin. An export gives them names of the form that the class expects: kBegin, the digits of a number as letters (A
/// for 0), Z.
Row masked_ids() {
  constexpr const char* kKey = "vocabulary_map";
  constexpr const char* kBegin = "IMGIMG";
  const auto read = [=](JsonReader& r, HfConfig& c) {
    const nlohmann::json* map = r.raw(kKey);
    if (map == nullptr) return;
    std::set<int64_t> ids;
    const bool good = map->is_object() && std::all_of(map->begin(), map->end(),
                                                      [](const nlohmann::json& id) { return id.is_number_integer(); });
    if (!good) return r.refuse(kKey, "expected an object that gives each token's id, such as {\"<image>\": 8711}");
    for (const auto& [name, id] : map->items())
      if (name.starts_with(kBegin)) ids.insert(id.get<int64_t>());
    c.model.masked_ids = {ids.begin(), ids.end()};
  };
  const auto write = [=](Json& j, const HfConfig& c) {
    j[kKey] = Json::object();
    for (size_t i = 0; i < c.model.masked_ids.size(); ++i) {
      std::string name = std::to_string(i);
      for (char& digit : name) digit = static_cast<char>('A' + (digit - '0'));
      j[kKey][kBegin + name + "Z"] = c.model.masked_ids[i];
    }
  };
  return {.read = read, .write = write};
}

}  // namespace

Family chameleon() {
  return {
      .class_name = "ChameleonForConditionalGeneration",
      .model_type = "chameleon",
      .base = {.norm = kRmsNorm,
               // The eps of this norm is always 1e-5.
               .qk_norm = {.kind = model::QkNorm::kHeadPer, .type = NormType::kLayerNorm, .bias = true}},
      .rows = joined(llama_rows({65536, 4096, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-5),
                     {kv_heads(32), head_dim(HeadDim::kDerived),
                      flag("swin_norm", false, swin_norm,
                           [](const model::ModelConfig& m) { return m.norm.placement == NormPlacement::kOutput; }),
                      masked_ids(), rope({.whole_heads = true}), ignored({"vq_config"}), attention_bias(), mlp_bias()}),
      .tensors = {
          .norm1_out = "input_layernorm", .norm2_out = "post_attention_layernorm", .other_part = "model.vqmodel."}};
}

}  // namespace ashlar::hf
