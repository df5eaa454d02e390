#include <algorithm>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// Row for the windows: if use_sliding_window is true, all layers have one. The class does not read layer_types.
Row windows_if_used() {
  constexpr const char *kUse = "use_sliding_window", *kWindow = "sliding_window";
  const auto read = [=](JsonReader& r, HfConfig& c) {
    r.ignore({kWindow, "max_window_layers"});
    std::optional<int64_t> window;
    if (r.boolean({kUse}, false)) window = r.has(kWindow) ? r.optional_size({kWindow}) : 4096;
    read_layer_types(r, c.model, window, [](int64_t) { return true; });
    if (c.model.attn.window_cycle != std::vector<int64_t>{window.value_or(-1)})
      r.refuse("layer_types", c.family->class_name, " does not read this key; remove layer_types");
  };
  const auto write = [=](Json& j, const HfConfig& c) {
    const std::vector<int64_t> layers = model::layer_windows(c.model);
    const auto slides = std::ranges::find_if(layers, [](int64_t w) { return w > 0; });
    j[kUse] = slides != layers.end();
    j[kWindow] = slides != layers.end() ? Json(*slides) : Json(nullptr);
  };
  return {.read = read, .write = write, .limit = sliding_alone};
}

}  // namespace

Family qwen3_moe() {
  return {
      .class_name = "Qwen3MoeForCausalLM",
      .model_type = "qwen3_moe",
      .base = {.norm = kRmsNorm, .moe = {.balance = model::Balance::kNone}, .qk_norm = {.kind = model::QkNorm::kHead}},
      .rows = joined(
          llama_rows({151936, 32768, 2048, 24, 32, 6144}, "silu", "rms_norm_eps", 1e-6),
          {kv_heads(4), head_dim(HeadDim::kWritten), attention_bias(), qk_norm_eps(),
           experts({"num_experts", "num_local_experts"}, 128), size({"moe_intermediate_size"}, {FIELD(moe.d_ff)}, 768),
           size({"num_experts_per_tok"}, {FIELD(moe.top_k)}, 8), renormalized(false), sparse_layers(), router_losses(),
           windows_if_used(), rope({.whole_heads = true})}),
      .tensors = {.expert_forms = {kEachExpert, kFusedExperts}}};
}

}  // namespace ashlar::hf
