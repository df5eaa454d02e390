#include <algorithm>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// moe_layer_start_index, moe_layer_end_index (-1: the last layer) and moe_layer_interval: layer i has experts if it is
/// from start to end and the interval divides i + 1.
Row layers_from_start_to_end() {
  constexpr const char *kStart = "moe_layer_start_index", *kEnd = "moe_layer_end_index";
  constexpr const char* kInterval = "moe_layer_interval";
  const auto read = [=](JsonReader& r, HfConfig& c) {
    model::ModelConfig& m = c.model;
    const double start = r.number({kStart}, 1), end = r.number({kEnd}, -1);
    m.moe.every = r.optional_size({kInterval}).value_or(1);
    if (!(start >= 0 && start <= 1e9)) return r.refuse(kStart, "expected a layer, 0 or more; correct this key");
    m.moe.first_layer = static_cast<int64_t>(start);
    m.moe.dense_layers.clear();
    for (int64_t layer = 0; layer < m.n_layers && end != -1; ++layer)
      if (static_cast<double>(layer) > end) m.moe.dense_layers.push_back(layer);
  };
  const auto write = [=](Json& j, const HfConfig& c) {
    const model::ModelConfig& m = c.model;
    const std::vector<int64_t> layers = expert_layers_of(m);
    // Read again, the model says them as it does now. Where start and end alone would give experts to a layer that
    // has none, they are the first and the last layer that has them.
    const auto listed = [&](int64_t layer) { return std::ranges::binary_search(m.moe.dense_layers, layer); };
    const auto on_interval = [&](int64_t from, int64_t to) { return to / m.moe.every > from / m.moe.every; };
    int64_t start = m.moe.first_layer, end = m.n_layers - 1;
    while (end > 0 && listed(end)) --end;
    if (!layers.empty()) {
      if (on_interval(start, layers.front())) start = layers.front();
      if (on_interval(layers.back() + 1, end + 1)) end = layers.back();
    }
    j[kStart] = start;
    j[kEnd] = end;
    j[kInterval] = m.moe.every;
  };
  return {.read = read, .write = write};
}

}  // namespace

Family ernie4_5_moe() {
  return {.class_name = "Ernie4_5_MoeForCausalLM",
          .model_type = "ernie4_5_moe",
          .base = {.norm = kRmsNorm,
                   .moe = {.selection_bias = true, .balance = model::Balance::kNone},
                   .rope = kInterleaved},
          .rows = joined(llama_rows({103424, 131072, 2560, 28, 20, 12288}, "silu", "rms_norm_eps", 1e-5),
                         {always_zero("attention_dropout", "expected 0: the class has no dropout; remove this key"),
                          kv_heads(4), head_dim(HeadDim::kWrittenIfNeeded),
                          always_false("use_bias",
                                       "expected false: whether experts have biases too depends on the version of "
                                       "transformers; use another model",
                                       true),
                          experts({"moe_num_experts", "num_experts"}, 64),
                          size({"moe_intermediate_size"}, {FIELD(moe.d_ff)}, 1536),
                          size({"moe_k", "num_experts_per_tok"}, {FIELD(moe.top_k)}, 6),
                          shared_experts("moe_num_shared_experts", 2, false), layers_from_start_to_end(),
                          number("moe_norm_min", {FIELD(moe.rule.sum_floor)}, 1e-12), router_losses(),
                          rope({.base = 500000.0, .whole_heads = true})}),
          .tied_by_default = true,
          .tensors = {.selection_bias = "mlp.moe_statics.e_score_correction_bias",
                      .selection_bias_row = true,
                      .expert_forms = {kEachExpert, kFusedExperts},
                      .shared = "mlp.shared_experts.",
                      .further_blocks = "mtp"}};
}

}  // namespace ashlar::hf
