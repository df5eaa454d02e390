#pragma once

#include <cstdint>
#include <optional>

#include "core/nn/parameter.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// What the initial values of a matrix [out, in] depend on.
struct MatrixPlace {
  int64_t out = 0, in = 0;
  bool queries = false;                           ///< it makes queries of the stream
  std::optional<int64_t> residual_of_layer = {};  ///< of this layer's two matrices that write to the stream: from 0
};

/// Initial values of a matrix by init.scheme: normal with this deviation. C = d_model, D = head_dim, L = n_layers:
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
/// Those that write to the stream have it times init.residual_scale, 1 unless given but for gpt2. With init.trunc_sigma
/// numbers beyond so many deviations are drawn again: the deviation is that before the cut.
nn::InitRule matrix_init(const ModelConfig& config, const MatrixPlace& place);
/// Embedding and position tables: normal with init.std, cut as matrices are.
nn::InitRule table_init(const ModelConfig& config);
/// T5's table of biases: as other tables, but for scheme t5: 1/sqrt(C) (Hugging Face's T5).
nn::InitRule t5_bias_init(const ModelConfig& config);
/// What init.std is when nobody gives it: 0.02; by the schemes that say it, of tables: small_wang sqrt(2/(5 C)),
/// mitchell 1/sqrt(C), fan_in and t5 1. `rule` gets the formula.
double default_table_std(const ModelConfig& config, std::string& rule);

/// A scalar of xielu whose softplus is `value` at first.
nn::InitRule xielu_init(double value);
/// The curvature that both halves of xielu begin with (arXiv:2411.13010 section 4).
inline constexpr double kXieluStart = 0.8;

/// A norm's gain: it multiplies by 1 at first.
nn::InitRule gain_init(const ModelConfig& config);

}  // namespace ashlar::model
