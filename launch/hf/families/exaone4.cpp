#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"
#include "parallel/model/rope_frequencies.h"

namespace ashlar::hf {
namespace {

/// In a model with windows, the layers with full attention do not use rotary positions; without windows all layers do.
Row windows_and_rotation() {
  constexpr const char* kKey = "sliding_window";
  const Row kinds = windows({.absent = 4096, .full_every = 4, .every_key = "sliding_window_pattern"});
  const auto read = [=](JsonReader& r, HfConfig& c) {
    kinds.read(r, c);
    c.model.rope.global_enabled = r.has(kKey) && !r.has_value(kKey);
  };
  const auto write = [=](Json& j, const HfConfig& c) {
    kinds.write(j, c);
    bool full_turn = true;
    const std::vector<int64_t> layers = model::layer_windows(c.model);
    for (int64_t i = 0; i < std::ssize(layers); ++i)
      full_turn = full_turn && (layers[i] > 0 || model::rope_of(c.model, i).base > 0);
    // Here no layer has a window, and a layer with full attention does not rotate. sliding_window must be a number,
    // although no layer uses it: with null the class would rotate in all layers.
    if (!full_turn && j[kKey].is_null()) j[kKey] = 4096;
  };
  return {.read = read, .write = write, .limit = kinds.limit};
}

}  // namespace

Family exaone4() {
  return {.class_name = "Exaone4ForCausalLM",
          .model_type = "exaone4",
          .base = {.norm = rms_norm(model::NormPlacement::kOutput), .qk_norm = {.kind = model::QkNorm::kHead}},
          .rows = joined(llama_rows({102400, 2048, 4096, 32, 32, 16384}, "silu", "rms_norm_eps", 1e-5),
                         {kv_heads(32), head_dim(HeadDim::kWrittenIfNeeded), qk_norm_eps(), rope({.whole_heads = true}),
                          windows_and_rotation()})};
}

}  // namespace ashlar::hf
