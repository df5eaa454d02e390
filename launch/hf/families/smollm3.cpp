#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"
#include "parallel/model/rope_frequencies.h"

namespace ashlar::hf {
namespace {

/// no_rope_layers has a 1 for each layer with rotary positions, and a 0 for each other layer. Without this key, every
/// no_rope_layer_interval-th layer has no rotary positions.
void read_layers_without_rope(JsonReader& r, HfConfig& c) {
  model::ModelConfig& m = c.model;
  const nlohmann::json* list = r.raw("no_rope_layers");
  const int64_t interval = r.optional_size({"no_rope_layer_interval"}).value_or(4);
  std::vector<double> bases;
  for (int64_t layer = 0; layer < m.n_layers; ++layer) {
    bool turns = (layer + 1) % interval != 0;
    if (list != nullptr) {
      const bool good = list->is_array() && std::ssize(*list) >= m.n_layers && (*list)[layer].is_number_integer();
      if (!good) return r.refuse("no_rope_layers", "expected a list of 0 and 1, one for each layer; correct the list");
      turns = (*list)[layer].get<int64_t>() != 0;
    }
    bases.push_back(turns ? m.rope.base : 0.0);
  }
  m.rope.base_cycle = model::shortest_cycle(bases);
  if (m.rope.base_cycle == std::vector<double>{m.rope.base}) m.rope.base_cycle.clear();
}

void write_layers_without_rope(Json& j, const HfConfig& c) {
  Json list = Json::array();
  for (int64_t layer = 0; layer < c.model.n_layers; ++layer)
    list.push_back(model::rope_of(c.model, layer).base > 0 ? 1 : 0);
  j["no_rope_layers"] = list;
}

}  // namespace

Family smollm3() {
  return {
      .class_name = "SmolLM3ForCausalLM",
      .model_type = "smollm3",
      .base = {.norm = kRmsNorm},
      .rows = joined(
          llama_rows({128256, 32768, 2048, 36, 16, 11008}, "silu", "rms_norm_eps", 1e-6),
          {kv_heads(4),
           head_dim(HeadDim::kWrittenIfNeeded),
           attention_bias(),
           mlp_bias(),
           rope({.base = 2e6, .whole_heads = true}),
           {.read = read_layers_without_rope, .write = write_layers_without_rope},
           always_false("use_sliding_window",
                        "expected false: windows of this class are not supported; use another model"),
           ignored({"sliding_window", "max_window_layers"}),
           {.read = [](JsonReader& r,
                       HfConfig& c) { read_layer_types(r, c.model, std::nullopt, [](int64_t) { return false; }); }}}),
      .tied_by_default = true};
}

}  // namespace ashlar::hf
