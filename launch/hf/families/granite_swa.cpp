#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"
#include "parallel/model/rope_frequencies.h"

namespace ashlar::hf {
namespace {

/// Row for layer_rope_theta, a list with the rotary base of each layer, or 0 for a layer without rotary positions. If
/// the key is null, all layers use rope_theta.
Row bases_by_layer() {
  constexpr const char* kKey = "layer_rope_theta";
  const auto read = [=](JsonReader& r, HfConfig& c) {
    const nlohmann::json* list = r.raw(kKey);
    if (list == nullptr) return;
    std::vector<double> by_layer;
    bool good = list->is_array() && std::ssize(*list) == c.model.n_layers;
    for (size_t i = 0; good && i < list->size(); ++i) {
      good = (*list)[i].is_number() && (*list)[i].get<double>() >= 0;
      if (good) by_layer.push_back((*list)[i].get<double>());
    }
    if (!good) return r.refuse(kKey, "expected a list of numbers >= 0, one for each layer; correct the list");
    c.model.rope.base_cycle = by_layer;
    c.model.rope = model::with_canonical_rope(c.model).rope;
  };
  const auto write = [=](Json& j, const HfConfig& c) {
    j[kKey] = Json::array();
    for (int64_t i = 0; i < c.model.n_layers; ++i) j[kKey].push_back(model::rope_of(c.model, i).base);
  };
  return {.read = read, .write = write};
}

}  // namespace

Family granite_swa() {
  return {.class_name = "GraniteSWAForCausalLM",
          .model_type = "granite_swa",
          .base = {.norm = kRmsNorm, .attn = {.sinks = true}},
          .rows = joined(
              llama_rows({100352, 8192, 2560, 24, 20, 8192}, "silu", "rms_norm_eps", 1e-5),
              joined({kv_heads(4), head_dim(HeadDim::kWrittenIfNeeded), attention_bias(), mlp_bias()},
                     joined(granite_multipliers(),
                            joined(granite_scales(), {windows({.absent = 128, .full_every = 4, .first_is_full = true}),
                                                      bases_by_layer()})))),
          .tied_by_default = true};
}

}  // namespace ashlar::hf
