#pragma once

#include <cstdint>
#include <string_view>

#include "launch/new_config/shape.h"

/// Published rules for what a model is trained with.
namespace ashlar::new_config {

/// Tokens of a sequence for a model in which a token meets so many parameters, at most the family's context: 256 below
/// 3 million, 512 below 30, 1024 below 200 (nanoGPT, GPT-2); 2048 below a billion (GPT-3, Pythia, SmolLM); else 4096
/// (Llama 2, OLMo 2, DeepSeek LLM).
int64_t sequence_length_for(const Family& family, int64_t parameters);

/// 20 tokens a parameter (Hoffmann et al. 2022, arXiv 2203.15556).
inline constexpr int64_t kTokensPerParameter = 20;
/// Repeating data up to four times is nearly as good as new data (Muennighoff et al. 2023, arXiv 2305.16264).
inline constexpr double kUsefulEpochs = 4;

struct TrainingRequest {
  const Shape& shape;
  int64_t sequence_length = 0;
  int64_t tokens = 0;  ///< to train on
  int64_t ranks = 1;
};

struct TrainingRules {
  int64_t tokens = 0;  ///< steps * global_batch * sequence_length
  int64_t steps = 0;
  int64_t global_batch = 0;  ///< sequences
  double compute = 0;        ///< C of the rules for batch and rate, in flops
  double batch_tokens = 0;   ///< what the rule says, before it is rounded
  double lr = 0;
  int64_t warmup_steps = 0, eval_every = 0, eval_sequences = 0, checkpoint_every = 0, log_every = 0;
};

/// DeepSeek LLM (arXiv 2401.02954, section 3.1): with C flops of training, of the layers alone, the best batch has
/// 0.2920 C^0.3271 tokens and the best rate is 0.3118 C^-0.1250.
double batch_tokens_for(double compute);
double lr_for(double compute);

/// Throws an input error if so few tokens are less than kLeastSteps steps.
TrainingRules training_rules(const TrainingRequest& request);
inline constexpr int64_t kLeastSteps = 20;

}  // namespace ashlar::new_config
