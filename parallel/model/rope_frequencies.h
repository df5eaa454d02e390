#pragma once

#include <cstdint>
#include <vector>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Rotation of a layer.
struct LayerRope {
  double base = 0;       ///< 0: no rotation
  bool scaled = false;   ///< true if rope.scaling applies to its frequencies
  int64_t dims = 0;      ///< columns of a head that rotate: rope.dims or rope.global_dims
  int64_t head_dim = 0;  ///< head width of this layer
  /// Number of columns that the kernels rotate: dims, or with proportional scaling the whole head, whose columns beyond
  /// dims have angle 0.
  int64_t turned = 0;
  bool operator==(const LayerRope&) const = default;
};
LayerRope rope_of(const ModelConfig& config, int64_t layer);

/// Returns the model with the canonical form of its section [rope]: two models that rotate equally in every layer get
/// equal sections. If all layers rotate with the same base, rope.base gives it; otherwise the shortest rope.base_cycle
/// gives the bases. rope.local_base and rope.global_enabled have their defaults. rope.scaled_layers is "all" if all
/// rotating layers are scaled. rope.scaling becomes "none" if it applies to no layer.
ModelConfig with_canonical_rope(ModelConfig config);

/// Returns the angle per position of each of the turned / 2 pairs of columns. With r = dims, pair m < r/2 has f = f_m =
/// base^(-2m/r), which rope.scaling replaces as follows:
///   linear        f / factor
///   llama3        w = 2 pi / f; f if w <= original/high; f / factor if w > original/low; else (1-s) f / factor + s f,
///                 s = (original/w - low) / (high - low)
///   yarn          d(n) = r ln(original / (2 pi n)) / (2 ln base); a = max(floor d(beta_fast), 0),
///                 z = min(ceil d(beta_slow), r-1); u = clip((m-a)/(z-a), 0, 1); (1-u) f + u f / factor
///                 (rope.truncate = false: without floor and ceil)
///   longrope      f_m / short_factor_m, or f_m / long_factor_m if positions > original
///   proportional  base^(-2m/head_dim) for m < r/2, and 0 for the other pairs of the head
///   dynamic       f_m with base * alpha^(r/(r-2)) as its base
/// high, low and original are rope.high_freq_factor, rope.low_freq_factor and rope.original_positions; `positions` is
/// the length of the longest sequence that will be used.
/// Sources: Chen et al. 2023 (arXiv:2306.15595), the Llama 3.1 release, Peng et al. 2023 (arXiv:2309.00071) section 3,
/// Ding et al. 2024 (arXiv:2402.13753), bloc97's NTK-aware scaling; the rotary code of transformers 5.
std::vector<double> rope_frequencies(const ModelConfig& config, const LayerRope& layer, int64_t positions);

/// Default of rope.attention_factor: 0.1 ln factor + 1 for yarn, sqrt(1 + ln factor / ln original) for longrope, where
/// original is rope.original_positions; 1 for all other scalings, and for a factor of at most 1.
double default_attention_factor(const RopeConfig& rope);

}  // namespace ashlar::model
