#pragma once

#include <cstdint>
#include <optional>

#include "core/nn/parameter.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Properties of a matrix [out, in] that determine its initial values.
struct MatrixPlace {
  int64_t out = 0, in = 0;
  bool queries = false;                           ///< a query projection
  std::optional<int64_t> residual_of_layer = {};  ///< layer index of a matrix that writes to the residual stream
};

/// Initial values of a matrix by init.scheme: normal with this standard deviation. C = d_model, D = head_dim, L =
/// n_layers:
///
///   scheme      deviation                             of the matrices that write to the stream, layer l
///   normal      std                                   std
///   gpt2        std                                   std                (Radford et al. 2019, section 2.3)
///   small_wang  sqrt(2/(5 C))                         2/(L sqrt(C))      (Nguyen & Salazar 2019, arXiv:1910.05895,
///               section 2.2, and Wang's in GPT-NeoX: Black et al. 2022, arXiv:2204.06745, section 3.3)
///   fan_in      1/sqrt(in)                            1/sqrt(in)         (Chowdhery et al. 2022, arXiv:2204.02311,
///               section 5)
///   mitchell    1/sqrt(in)                            1/sqrt(2 in (l+1)) (OLMo's code, and open_lm's)
///   t5          1/sqrt(in), queries 1/sqrt(in D)      1/sqrt(in)         (Mesh TensorFlow's code: attention without
///               a factor; the head's matrix is one more with 1/sqrt(in))
///   xavier      sqrt(2/(in + out))                    the same           (Glorot & Bengio 2010, eq. 16)
///   kaiming     sqrt(2/in)                            the same           (He et al. 2015, eq. 10)
///
/// Matrices that write to the stream are also scaled by init.residual_scale (1 by default, except for gpt2). With
/// init.trunc_sigma values beyond that many deviations are drawn again: the deviation is that before truncation.
nn::InitRule matrix_init(const ModelConfig& config, const MatrixPlace& place);
/// Embedding and position tables: normal with init.std, truncated like matrices.
nn::InitRule table_init(const ModelConfig& config);
/// T5's table of biases: as other tables, but 1/sqrt(C) for scheme t5 (Hugging Face's T5).
nn::InitRule t5_bias_init(const ModelConfig& config);
/// Default of init.std: 0.02; for schemes that define it for tables: small_wang sqrt(2/(5 C)), mitchell 1/sqrt(C),
/// fan_in and t5 1. `rule` receives the formula.
double default_table_std(const ModelConfig& config, std::string& rule);

/// A scalar of xielu, initialized so that its softplus is `value`.
nn::InitRule xielu_init(double value);
/// Initial curvature of both halves of xielu (arXiv:2411.13010 section 4).
inline constexpr double kXieluStart = 0.8;

/// A norm's gain, initialized so that it multiplies by 1.
nn::InitRule gain_init(const ModelConfig& config);

}  // namespace ashlar::model
