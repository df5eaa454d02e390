#pragma once

#include <cstdint>
#include <optional>

#include "core/nn/parameter.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Properties of a matrix [out, in] that determine its initial values.
struct MatrixPlace {
  int64_t out = 0, in = 0;
  int64_t query_head_dim = 0;                     ///< width of a head, for a query projection; 0 for other matrices
  std::optional<int64_t> residual_of_layer = {};  ///< layer index of a matrix that writes to the residual stream
};

/// Initial values of a matrix: normal, with the standard deviation that init.scheme selects. C = d_model, D = the width
/// of a head in the layer, L = n_layers:
///
///   scheme      deviation                             of the matrices that write to the stream, layer l
///   normal      std                                   std
///   gpt2        std                                   std                (Radford et al. 2019, section 2.3)
///   small_wang  sqrt(2/(5 C))                         2/(L sqrt(C))      (Nguyen & Salazar 2019, arXiv:1910.05895,
///               section 2.2, and Wang's formula in GPT-NeoX: Black et al. 2022, arXiv:2204.06745, section 3.3)
///   fan_in      1/sqrt(in)                            1/sqrt(in)         (Chowdhery et al. 2022, arXiv:2204.02311,
///               section 5)
///   mitchell    1/sqrt(in)                            1/sqrt(2 in (l+1)) (OLMo's code, and open_lm's)
///   t5          1/sqrt(in), queries 1/sqrt(in D)      1/sqrt(in)         (Mesh TensorFlow's code, whose scores have
///               no factor D^-0.5; the LM head has 1/sqrt(in) too)
///   xavier      sqrt(2/(in + out))                    the same           (Glorot & Bengio 2010, eq. 16)
///   kaiming     sqrt(2/in)                            the same           (He et al. 2015, eq. 10)
///
/// Matrices that write to the stream are also scaled by init.residual_scale (1 by default, except for gpt2). With
/// init.trunc_sigma, values beyond that many deviations are drawn again; the table gives the deviation before
/// truncation.
nn::InitRule matrix_init(const ModelConfig& config, const MatrixPlace& place);
/// Initial values of embedding and position tables: normal with init.std, truncated like matrices.
nn::InitRule table_init(const ModelConfig& config);
/// Initial values of T5's table of biases: like other tables, but with deviation 1/sqrt(C) for scheme t5 (Hugging
/// Face's T5).
nn::InitRule t5_bias_init(const ModelConfig& config);
/// Returns the default of init.std, and sets `rule` to its formula. The default is sqrt(2/(5 C)) for small_wang,
/// 1/sqrt(C) for mitchell, 1 for fan_in and t5, and 0.02 for the other schemes.
double default_table_std(const ModelConfig& config, std::string& rule);

/// Initial value of a scalar of xielu, such that its softplus is `value`.
nn::InitRule xielu_init(double value);
/// Initial curvature of both halves of xielu (arXiv:2411.13010 section 4).
inline constexpr double kXieluStart = 0.8;

/// Initial value of a norm's gain, such that it multiplies by 1.
nn::InitRule gain_init(const ModelConfig& config);

}  // namespace ashlar::model
