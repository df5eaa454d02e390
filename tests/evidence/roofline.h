#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launch/plan/kernel_bytes.h"
#include "parallel/model/model_config.h"

namespace ashlar::evidence {

inline constexpr double kElement = 2, kWide = 4;  ///< bytes of an element in bf16 and in fp32
/// Launches of a step beside those of blocks: embedding, head, loss in chunks, norm and update; counted, rounded up.
inline constexpr int64_t kLaunchesBesideBlocks = 20;

/// Rates that a prediction rests on: of an H100 SXM, as others have measured them (where: at the head of SPEED.md).
/// They are frozen: back_test.cpp holds that with them LLM.Q's four steps come out as LLM.Q measured them.
struct Rates {
  std::string name;
  double peak = 989.4e12;        ///< bf16 flop/s without sparsity
  double products = 712e12;      ///< of long products, sustained
  double products_half_k = 128;  ///< a product over k terms has k / (k + this) of that rate
  double copy = 3.0e12;          ///< bytes/s
  double launch_gap = 1.5e-6;    ///< s between two kernels of a stream
  // Attention, causal flops at T 1024, by head_dim 64 and 128.
  double attention_forward[2] = {};
  double attention_backward[2] = {};  ///< of five products
  double backward_products = 5;       ///< that ours makes
  /// Bytes that backward writes and reads again for each query and key, seen or not: of cuDNN's deterministic backward
  /// on Hopper, which keeps the gradients of scores (dP) in a workspace.
  double score_bytes = 0;
};
/// Our kernels: mma.sync, at kOwnAttention of FlashAttention-2's rates, seven products backward.
Rates own_attention();
/// cuDNN's attention with its deterministic backward, which a run with equal bits needs.
Rates cudnn_attention();
/// Share of FlashAttention-2's rates that our attention reaches, by the instructions that it issues for each tensor
/// core product (6 to 7, FlashAttention-2 about 3.3): estimated, with what it may be at least and at most.
inline constexpr double kOwnAttention = 0.78, kOwnAttentionLeast = 0.65, kOwnAttentionMost = 1.0;

/// What else is known of rates that intervals vary: of products, and of copies as a share.
inline constexpr double kProductsLeast = 680e12, kProductsMost = 745e12, kCopyLeast = 0.93, kCopyMost = 1.03;

/// A GPU by what a prediction needs. Rates of products are those of an H100, which an H200 has too.
struct Card {
  std::string name;
  double memory = 0;  ///< bytes
  double copy = 0;    ///< bytes/s: nine tenths of the data sheet's
};
Card h100();
Card h200();

/// A model as its step is predicted.
struct Shape {
  std::string name;
  model::ModelConfig model;
  int64_t T = 1024, micro_batch = 16, sequences = 512;  ///< tokens of a sample; samples of a micro-batch, of a step
  double rival = 0;                                     ///< tokens/s of LLM.Q on one H100, or 0
  Card card = h100();
  int64_t head_chunks = 0;        ///< of the logits of a micro-batch; 0: as many as ours makes
  double gradient_bytes = kWide;  ///< of a number of the main gradients
};
/// Ours, each with the largest micro-batch up to 16 that fits into its card, or 1 where none does.
std::vector<Shape> shapes();
/// The four that LLM.Q has measured, in its configuration.
std::vector<Shape> rival_shapes();

/// Bytes that a run of the shape takes on its card, as `ashlar plan` finds them: by a dry run, with 1.5e9 for the
/// driver and its libraries.
double memory_of(const Shape& shape);
inline bool fits(const Shape& shape) { return memory_of(shape) <= shape.card.memory; }

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

/// Tokens/s that may come out: each rate varied alone within what is known of it, and the largest error of the
/// back-test; the effects on the step's time are added as independent ones (root of the sum of squares).
struct Interval {
  double low = 0, high = 0;
};
Interval interval(const Shape& shape, const Rates& rates, int64_t launches_of_a_block);
/// The same from a step's tokens and seconds, and its seconds with each doubtful rate at its worst and at its best.
Interval interval_of(double tokens, double seconds, const std::vector<std::pair<double, double>>& doubts);

}  // namespace ashlar::evidence
