#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// Returns a number whose reciprocal is exactly `factor`, or 1 / factor if no double near it has that reciprocal.
double divisor_of(double factor) {
  const double guess = 1.0 / factor;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double d : {guess, std::nextafter(guess, 0.0), std::nextafter(guess, kInfinity)})
    if (1.0 / d == factor) return d;
  return guess;
}

/// Row for a key whose number divides the logits.
Row logit_divisor(const char* key, double fallback) {
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const double divisor = r.number({key}, fallback);
                if (!(divisor > 0)) r.refuse(key, "expected a number above 0; correct this key");
                c.model.logit_scale = divisor > 0 ? 1.0 / divisor : 1.0;
              },
          .write = [=](Json& j, const HfConfig& c) { j[key] = divisor_of(c.model.logit_scale); }};
}

}  // namespace

Rows granite_rows() {
  return joined(llama_rows({32000, 2048, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-6),
                {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), attention_bias(), mlp_bias()});
}

Rows granite_multipliers() {
  return {number("embedding_multiplier", {FIELD(embed_scale)}, 1.0),
          number("residual_multiplier", {FIELD(block.residual_multiplier)}, 1.0), rope({.whole_heads = true})};
}

Rows granite_scales() {
  return {number("attention_multiplier", {FIELD(attn.scale)}, 1.0), logit_divisor("logits_scaling", 1.0)};
}

}  // namespace ashlar::hf
