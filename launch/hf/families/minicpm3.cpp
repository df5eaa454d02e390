#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;

/// Returns a number x near `guess` for which f(x) is exactly `wanted`, or `guess` if none is found.
template <typename F>
double inverse(double guess, double wanted, const F& f) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double below = std::nextafter(guess, -kInfinity), above = std::nextafter(guess, kInfinity);
  // A short decimal number is tried first, because the imported file probably had one.
  for (const double x : {std::round(guess * 1e9) / 1e9, guess, below, above})
    if (f(x) == wanted) return x;
  return guess;
}

/// scale_depth: the output of each branch is multiplied by scale_depth / sqrt(n_layers).
Row depth_scale() {
  constexpr const char* kKey = "scale_depth";
  const auto multiplier = [](const ModelConfig& m, double depth) {
    return depth / std::sqrt(static_cast<double>(m.n_layers));
  };
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const bool null = r.has(kKey) && !r.has_value(kKey);
                const double depth = r.optional_number({kKey}).value_or(1.4);
                c.model.block.residual_multiplier = null ? 1.0 : multiplier(c.model, depth);
              },
          .write =
              [=](Json& j, const HfConfig& c) {
                const double wanted = c.model.block.residual_multiplier;
                if (wanted == 1.0) {
                  j[kKey] = nullptr;
                  return;
                }
                j[kKey] = inverse(wanted * std::sqrt(static_cast<double>(c.model.n_layers)), wanted,
                                  [&](double depth) { return multiplier(c.model, depth); });
              }};
}

/// dim_model_base: the input of the head is divided by d_model / dim_model_base.
Row base_width() {
  constexpr const char* kKey = "dim_model_base";
  const auto scale = [](const ModelConfig& m, int64_t base) {
    return 1.0 / (static_cast<double>(m.d_model) / static_cast<double>(base));
  };
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const bool null = r.has(kKey) && !r.has_value(kKey);
                const int64_t base = r.optional_size({kKey}).value_or(null ? c.model.d_model : 256);
                c.model.logit_scale = scale(c.model, base);
              },
          .write =
              [=](Json& j, const HfConfig& c) {
                const double base = std::round(c.model.logit_scale * static_cast<double>(c.model.d_model));
                j[kKey] = static_cast<int64_t>(std::clamp(base, 1.0, 2147483647.0));
              }};
}

}  // namespace

Family minicpm3() {
  return {
      .class_name = "MiniCPM3ForCausalLM",
      .model_type = "minicpm3",
      .base = {.norm = kRmsNorm},
      .rows = joined(llama_rows({73448, 32768, 2560, 62, 40, 6400}, "silu", "rms_norm_eps", 1e-5),
                     joined({heads_divide_width(), kv_heads(40), latent_sizes({768, 256, 64, 32, 0}), attention_bias(),
                             mlp_bias(), number("scale_emb", {FIELD(embed_scale)}, 12.0), depth_scale(), base_width()},
                            latent_rope(10000.0))),
      .tied_by_default = true};
}

}  // namespace ashlar::hf
