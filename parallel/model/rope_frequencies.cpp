#include "parallel/model/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ashlar::model {
namespace {

double llama3(const RopeConfig& c, double f) {
  const double wavelength = 2 * std::numbers::pi / f, original = static_cast<double>(c.original_positions);
  if (wavelength <= original / c.high_freq_factor) return f;  // no blend where both factors are equal
  if (wavelength > original / c.low_freq_factor) return f / c.factor;
  const double s = (original / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
  return (1 - s) * f / c.factor + s * f;
}

/// The weight u of the interpolated frequency of pair m (see yarn in rope_frequencies.h).
class YarnRamp {
 public:
  YarnRamp(const RopeConfig& c, double dims, double base) {
    const auto original = static_cast<double>(c.original_positions);
    const auto pair_of = [&](double turns) {
      return dims * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
    };
    const double fast = pair_of(c.beta_fast), slow = pair_of(c.beta_slow);
    first_ = std::max(c.truncate ? std::floor(fast) : fast, 0.0);
    last_ = std::min(c.truncate ? std::ceil(slow) : slow, dims - 1);
    if (first_ == last_) last_ += 0.001;
  }
  double of(double m) const { return std::clamp((m - first_) / (last_ - first_), 0.0, 1.0); }

 private:
  double first_ = 0, last_ = 0;
};

}  // namespace

LayerRope rope_of(const ModelConfig& c, int64_t layer) {
  if (c.pos.type != PosType::kRope) return {};
  const RopeConfig& r = c.rope;
  const bool full = layer_windows(c).at(static_cast<size_t>(layer)) < 0;
  double base = r.base_cycle.empty() ? r.base : r.base_cycle[static_cast<size_t>(layer) % r.base_cycle.size()];
  if (!full && r.local_base) base = *r.local_base;
  if (full && !r.global_enabled) base = 0;
  LayerRope rope{.base = base, .dims = full ? global_rope_dims(c) : r.dims, .head_dim = layer_heads(c, layer).head_dim};
  rope.scaled = base > 0 && r.scaling != RopeScaling::kNone && (full || r.scaled_layers == ScaledLayers::kAll);
  rope.turned = rope.scaled && r.scaling == RopeScaling::kProportional ? rope.head_dim : rope.dims;
  return rope;
}

ModelConfig with_canonical_rope(ModelConfig c) {
  if (c.pos.type != PosType::kRope) return c;
  std::vector<double> bases;
  bool any_scaled = false, any_plain = false, any_full = false;  // computed over the layers that rotate
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    const LayerRope rope = rope_of(c, layer);
    bases.push_back(rope.base);
    if (rope.base == 0) continue;
    (rope.scaled ? any_scaled : any_plain) = true;
    any_full = any_full || layer_windows(c)[static_cast<size_t>(layer)] < 0;
  }
  RopeConfig& r = c.rope;
  r.local_base.reset();
  r.global_enabled = true;
  r.base_cycle = shortest_cycle(bases);
  const auto turns = std::find_if(bases.begin(), bases.end(), [](double base) { return base > 0; });
  if (turns != bases.end()) r.base = *turns;
  if (r.base_cycle == std::vector<double>{r.base}) r.base_cycle.clear();
  if (!any_plain) r.scaled_layers = ScaledLayers::kAll;
  const int64_t global_dims = global_rope_dims(c);
  r.global_dims.reset();
  if (any_full && global_rope_dims(c) != global_dims) r.global_dims = global_dims;
  if (any_scaled) return c;
  r = {.base = r.base,
       .dims = r.dims,
       .global_dims = r.global_dims,
       .style = r.style,
       .reversed = r.reversed,
       .base_cycle = r.base_cycle};
  return c;
}

std::vector<double> rope_frequencies(const ModelConfig& config, const LayerRope& layer, int64_t positions) {
  const RopeConfig& c = config.rope;
  const RopeScaling scaling = layer.scaled ? c.scaling : RopeScaling::kNone;
  std::vector<double> frequencies(static_cast<size_t>(layer.turned / 2), 0.0);
  if (layer.base == 0) return frequencies;
  const auto dims = static_cast<double>(layer.dims);
  double base = layer.base, exponent_dims = dims;
  if (scaling == RopeScaling::kDynamic) base *= std::pow(c.alpha, dims / (dims - 2));
  if (scaling == RopeScaling::kProportional) exponent_dims = static_cast<double>(layer.head_dim);
  const YarnRamp ramp(c, dims, base);
  const std::vector<double>& factors = positions > c.original_positions ? c.long_factor : c.short_factor;
  for (int64_t m = 0; m < layer.dims / 2; ++m) {
    const double f = std::pow(base, -2.0 * static_cast<double>(m) / exponent_dims);
    double& out = frequencies[static_cast<size_t>(m)];
    switch (scaling) {
      case RopeScaling::kNone:
      case RopeScaling::kDynamic:
      case RopeScaling::kProportional: out = f; break;
      case RopeScaling::kLinear: out = f / c.factor; break;
      case RopeScaling::kLlama3: out = llama3(c, f); break;
      case RopeScaling::kYarn: {
        const double u = ramp.of(static_cast<double>(m));
        out = f * (1 - u) + f / c.factor * u;
        break;
      }
      case RopeScaling::kLongrope: out = f / factors.at(static_cast<size_t>(m)); break;
    }
  }
  return frequencies;
}

double default_attention_factor(const RopeConfig& c) {
  if (!(c.factor > 1)) return 1.0;
  if (c.scaling == RopeScaling::kYarn) return 0.1 * std::log(c.factor) + 1;
  if (c.scaling == RopeScaling::kLongrope)
    return std::sqrt(1 + std::log(c.factor) / std::log(static_cast<double>(c.original_positions)));
  return 1.0;
}

}  // namespace ashlar::model
