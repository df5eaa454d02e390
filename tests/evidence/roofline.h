#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launch/plan/kernel_bytes.h"
#include "parallel/model/model_config.h"

namespace ashlar::evidence {

inline constexpr double kElement = 2, kWide = 4;  ///< bytes of an element in bf16 and in fp32
/// Launches of a step beside those of blocks: embedding, head, loss in chunks, norm and update; counted, rounded up.
inline constexpr int64_t kLaunchesBesideBlocks = 20;

/// Rates that a prediction rests on: of an H100 SXM, as others have measured them (where: at the head of SPEED.md).
struct Rates {
  std::string name;
  double peak = 989.4e12;        ///< bf16 flop/s without sparsity
  double products = 700e12;      ///< of long products, sustained
  double products_half_k = 128;  ///< a product over k terms has k / (k + this) of that rate
  double copy = 3.0e12;          ///< bytes/s
  double launch_gap = 1.5e-6;    ///< s between two kernels of a stream
  // Attention, causal flops at T 1024, by head_dim 64 and 128.
  double attention_forward[2] = {};
  double attention_backward[2] = {};  ///< of five products
  double backward_products = 5;       ///< that ours makes
};
/// Our kernels: mma.sync, at the rates of FlashAttention-2, seven products backward.
Rates own_attention();
/// The same with cuDNN's attention.
Rates cudnn_attention();

/// A model as its step is predicted.
struct Shape {
  std::string name;
  model::ModelConfig model;
  int64_t T = 1024, micro_batch = 16, sequences = 512;  ///< tokens of a sample; samples of a micro-batch, of a step
  double rival = 0;                                     ///< tokens/s of LLM.Q on one H100, or 0
};
std::vector<Shape> shapes();

using plan::block_bytes_of_a_token;
using plan::expert_bytes_of_a_token;

/// Seconds of forward and both gradients of a product of `tokens` rows, k terms and m columns: sums over k, m, tokens.
double seconds_of_product(double tokens, double k, double m, const Rates& rates);

/// Where a step's time goes.
struct Line {
  std::string what;
  double seconds = 0;
  double ideal = 0;  ///< of its model flops at the peak
};
struct Prediction {
  std::vector<Line> lines;
  double seconds = 0;  ///< of a step
  double tokens_per_second = 0;
  double share_of_peak = 0;  ///< causal model flops (flops.h)
};
Prediction predict(const Shape& shape, const Rates& rates, int64_t launches_of_a_block);

}  // namespace ashlar::evidence
