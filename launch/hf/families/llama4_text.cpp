// In layers without rotary positions, queries and keys are not normalised either, and queries have a temperature.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"
#include "parallel/model/rope_frequencies.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::RotationKind;

void norm_rotated_heads(ModelConfig& m, bool used) {
  m.qk_norm = {};
  if (!used) return;
  m.qk_norm = {.kind = model::QkNorm::kL2,
               .order = model::QkNormOrder::kAfterRope,
               .eps = m.norm.variant.eps,
               .layers = RotationKind::kRotated};
}

/// The shared expert is as wide as a routed one.
void shared_width(ModelConfig& m) { m.moe.shared_d_ff = m.moe.d_ff; }

/// moe_layers, the layers with experts. Without it, every interleave_moe_layer_step-th layer has experts.
Row layers_with_experts() {
  constexpr const char *kLayers = "moe_layers", *kStep = "interleave_moe_layer_step";
  const auto read = [](JsonReader& r, HfConfig& c) {
    const int64_t step = r.optional_size({kStep}).value_or(1);
    std::optional<std::vector<int64_t>> layers = layer_list(r, kLayers, c.model.n_layers);
    if (!layers) {
      layers.emplace();
      for (int64_t layer = step - 1; layer < c.model.n_layers; layer += step) layers->push_back(layer);
    }
    set_expert_layers(c.model, *layers);
  };
  const auto write = [](Json& j, const HfConfig& c) {
    ModelConfig m = c.model;
    j[kLayers] = expert_layers_of(m);
    set_expert_layers(m, expert_layers_of(m));
    j[kStep] = m.moe.every;
  };
  return {.read = read, .write = write};
}

/// attention_chunk_size, and layer_types with "chunked_attention" or "full_attention" for each layer. Without
/// layer_types, the layers that rotate are chunked.
Row chunks() {
  constexpr const char *kSize = "attention_chunk_size", *kTypes = "layer_types", *kChunked = "chunked_attention";
  const auto read = [](JsonReader& r, HfConfig& c) {
    ModelConfig& m = c.model;
    const std::optional<int64_t> size = r.has(kSize) ? r.optional_size({kSize}) : 8192;
    const nlohmann::json* types = r.raw(kTypes);
    const bool good = types == nullptr || (types->is_array() && std::ssize(*types) == m.n_layers);
    if (!good) return r.refuse(kTypes, "expected a list of ", m.n_layers, " strings; correct the list");
    std::vector<int64_t> layers;
    for (int64_t layer = 0; layer < m.n_layers; ++layer) {
      const nlohmann::json type = types == nullptr ? nlohmann::json() : (*types)[static_cast<size_t>(layer)];
      const bool chunked = types == nullptr ? model::rope_of(m, layer).base > 0 : type == kChunked;
      if (types != nullptr && !chunked && type != "full_attention")
        return r.refuse(kTypes, "expected \"chunked_attention\" or \"full_attention\" for layer ", layer,
                        "; correct layer_types");
      if (chunked && !size)
        return r.refuse(kSize, "expected the size of a chunk, which layer ", layer, " needs; set this key");
      layers.push_back(chunked ? *size : -1);
      if (chunked) m.attn.window_kind = model::WindowKind::kChunked;
    }
    m.attn.window_cycle = model::shortest_cycle(layers);
  };
  const auto write = [](Json& j, const HfConfig& c) {
    const std::vector<int64_t> layers = model::layer_windows(c.model);
    const auto chunked = std::ranges::find_if(layers, [](int64_t w) { return w > 0; });
    if (chunked != layers.end()) j[kSize] = *chunked;
    j[kTypes] = Json::array();
    for (const int64_t window : layers) j[kTypes].push_back(window > 0 ? kChunked : "full_attention");
  };
  return {.read = read, .write = write};
}

/// attn_temperature_tuning: in layers without rotary positions, queries at position t are multiplied by
/// 1 + attn_scale * ln(1 + floor((t + 1) / floor_scale)). Older files have a number for true.
Row temperature() {
  constexpr const char *kOn = "attn_temperature_tuning", *kScale = "attn_scale", *kPositions = "floor_scale";
  const auto read = [](JsonReader& r, HfConfig& c) {
    const nlohmann::json* on = r.raw(kOn);
    const bool number = on != nullptr && on->is_number();
    const bool tuned = number ? *on != 0 : r.boolean({kOn}, true);
    const int64_t positions = r.optional_size({kPositions}).value_or(8192);
    const double scale = r.number({kScale}, 0.1);
    if (!tuned || scale == 0) return;
    model::AttentionConfig& attn = c.model.attn;
    attn.temperature_beta = scale;
    attn.temperature_positions = positions;
    attn.temperature_offset = 1;
    attn.temperature_layers = RotationKind::kUnrotated;
  };
  const auto write = [](Json& j, const HfConfig& c) {
    const model::AttentionConfig& attn = c.model.attn;
    const bool tuned = attn.temperature_positions > 0;
    j[kOn] = tuned;
    j[kPositions] = tuned ? attn.temperature_positions : 8192;
    j[kScale] = tuned ? attn.temperature_beta : 0.1;
  };
  return {.read = read, .write = write};
}

}  // namespace

Family llama4_text() {
  return {.class_name = "Llama4ForCausalLM",
          .model_type = "llama4_text",
          .base = {.norm = kRmsNorm,
                   .moe = {.scale_input = true,
                           .rule = {.score = RouterScore::kSigmoid, .renormalize = false},
                           .balance = model::Balance::kNone},
                   .rope = kInterleaved},
          .rows = joined(
              llama_rows({202048, 131072, 5120, 48, 40, 8192}, "silu", "rms_norm_eps", 1e-5),
              {kv_heads(8), head_dim(HeadDim::kWritten, 128), attention_bias(), experts({"num_local_experts"}, 16),
               expert_width(), derived(shared_width), size({"intermediate_size_mlp"}, {FIELD(d_ff)}, 16384),
               size({"num_experts_per_tok"}, {FIELD(moe.top_k)}, 1), layers_with_experts(),
               rope({.base = 5e5, .whole_heads = true}), layers_without_rope(true), chunks(),
               flag("use_qk_norm", true, norm_rotated_heads,
                    [](const ModelConfig& m) { return m.qk_norm.kind != model::QkNorm::kNone; }),
               temperature(), without_effect("router_jitter_noise"),
               ignored({"output_router_logits", "router_aux_loss_coef", "for_llm_compressor"})}),
          .tensors = {.gate = "feed_forward.gate_proj",
                      .up = "feed_forward.up_proj",
                      .down = "feed_forward.down_proj",
                      .router = "feed_forward.router",
                      .expert_forms = {{.experts = "feed_forward.experts.", .fused = true, .transposed = true},
                                       {.experts = "feed_forward.experts."}},
                      .shared = "feed_forward.shared_expert."},
          .whole = {.class_name = "Llama4ForConditionalGeneration",
                    .model_type = "llama4",
                    .other_parts = {"vision_model.", "multi_modal_projector."},
                    .other_keys = {"vision_config", "boi_token_index", "eoi_token_index", "image_token_index"}}};
}

}  // namespace ashlar::hf
