#include "parallel/model/flops.h"

namespace ashlar::model {

int64_t matmul_parameters(const ModelConfig& c) {
  const ParameterCount n = count_parameters(c);
  return n.attention + n.ffn + c.vocab_padded() * c.d_model;
}

FlopsPerToken flops_per_token(const ModelConfig& c, int64_t sequence_length) {
  FlopsPerToken f;
  f.matmul = 6.0 * static_cast<double>(matmul_parameters(c));
  f.attention_full = 12.0 * static_cast<double>(c.n_layers * c.q_width()) * static_cast<double>(sequence_length);
  f.attention_causal = 0.5 * f.attention_full;
  return f;
}

}  // namespace ashlar::model
