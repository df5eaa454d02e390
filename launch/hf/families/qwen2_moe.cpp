#include <algorithm>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// Row for the windows. If use_sliding_window is true, the layers that layer_types marks as sliding_attention have
/// windows; without layer_types, these are layers 0, 2, ... before max_window_layers.
Row alternating_windows() {
  constexpr const char* kWindow = "sliding_window";
  const auto read = [=](JsonReader& r, HfConfig& c) {
    const bool uses = r.boolean({"use_sliding_window"}, false);
    const nlohmann::json* first = r.raw("max_window_layers");
    const int64_t first_layers = first != nullptr && first->is_number_integer() ? first->get<int64_t>() : 28;
    r.ignore({kWindow});  // files have 0 if it is not in use
    std::optional<int64_t> window;
    if (uses) window = r.has(kWindow) ? r.optional_size({kWindow}) : 4096;
    if (uses && !r.has_value("layer_types"))
      r.add_note(
          "layer_types is absent: every second layer before max_window_layers has the window, as in transformers "
          "5; older versions had other layers");
    read_layer_types(r, c.model, window, [=](int64_t layer) { return layer % 2 == 0 && layer < first_layers; });
  };
  const auto write = [=](Json& j, const HfConfig& c) {
    const std::vector<int64_t> layers = model::layer_windows(c.model);
    const auto slides = std::ranges::find_if(layers, [](int64_t w) { return w > 0; });
    j["use_sliding_window"] = slides != layers.end();
    if (slides == layers.end()) return;
    j[kWindow] = *slides;
    j["max_window_layers"] = c.model.n_layers;
    j["layer_types"] = layer_types_of(layers);
  };
  return {.read = read, .write = write, .limit = sliding_alone};
}

}  // namespace

Family qwen2_moe() {
  return {.class_name = "Qwen2MoeForCausalLM",
          .model_type = "qwen2_moe",
          .base = {.norm = kRmsNorm, .moe = {.shared_gate = true, .balance = model::Balance::kNone}},
          .rows = joined(llama_rows({151936, 32768, 2048, 24, 16, 5632}, "silu", "rms_norm_eps", 1e-6),
                         {kv_heads(16), head_dim(HeadDim::kWrittenIfNeeded), flag("qkv_bias", {FIELD(bias.qkv)}, true),
                          experts({"num_experts"}, 60), size({"moe_intermediate_size"}, {FIELD(moe.d_ff)}, 1408),
                          size({"num_experts_per_tok"}, {FIELD(moe.top_k)}, 4), renormalized(false), sparse_layers(),
                          size({"shared_expert_intermediate_size"}, {FIELD(moe.shared_d_ff)}, 5632), router_losses(),
                          alternating_windows(), rope({.whole_heads = true})}),
          .tensors = {.expert_forms = {kEachExpert, kFusedExperts}}};
}

}  // namespace ashlar::hf
