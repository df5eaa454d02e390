#pragma once

#include <cstdint>
#include <vector>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Rotation of a layer.
struct LayerRope {
  double base = 0;       ///< 0: no rotation
  bool scaled = false;   ///< rope.scaling applies to its frequencies
  int64_t dims = 0;      ///< columns of a head that rotate: rope.dims or rope.global_dims
  int64_t head_dim = 0;  ///< head width of this layer
  /// Columns that the kernels rotate: dims; for proportional scaling the whole head, the rest with angle 0.
  int64_t turned = 0;
  bool operator==(const LayerRope&) const = default;
};
LayerRope rope_of(const ModelConfig& config, int64_t layer);

/// The canonical form of the model's section [rope]: two models that rotate equally in every layer get equal sections.
/// Bases per layer are given by the shortest rope.base_cycle, or by rope.base if they are all equal, never by
/// rope.local_base or rope.global_enabled. rope.scaled_layers is "all" if all rotating layers are scaled. A scaling
/// that applies to no layer is replaced by none.
ModelConfig with_canonical_rope(ModelConfig config);

/// Angle per position of each of the turned / 2 pairs. f_m = base^(-2m/r), r = dims, m < r/2, then by scaling:
///   linear        f / factor
///   llama3        w = 2 pi / f: w < original/high: f; w > original/low: f / factor; else (1-s) f / factor + s f,
///                 s = (original/w - low) / (high - low)
///   yarn          d(n) = r ln(original / (2 pi n)) / (2 ln base); a = max(floor d(beta_fast), 0),
///                 z = min(ceil d(beta_slow), r-1); u = clip((m-a)/(z-a), 0, 1); f (1-u) + f / factor u
///                 (not truncated: without floor and ceil)
///   longrope      f_m / short_factor_m, or long_factor_m where `positions` exceed the original ones
///   proportional  base^(-2m/head_dim), 0 for m >= r/2: pairs are those of the whole head
///   dynamic       of the base * alpha^(r/(r-2))
/// `positions`: length of the longest sequence that will be used.
/// Sources: Chen et al. 2023 (arXiv:2306.15595), the Llama 3.1 release, Peng et al. 2023 (arXiv:2309.00071) section 3,
/// Ding et al. 2024 (arXiv:2402.13753), bloc97's NTK-aware scaling; the rotary code of transformers 5.
std::vector<double> rope_frequencies(const ModelConfig& config, const LayerRope& layer, int64_t positions);

/// Default of rope.attention_factor: yarn 0.1 ln factor + 1; longrope sqrt(1 + ln factor / ln original).
double default_attention_factor(const RopeConfig& rope);

}  // namespace ashlar::model
