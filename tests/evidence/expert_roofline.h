#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/evidence/roofline.h"

namespace ashlar::evidence {

/// Rates of a prediction with experts, beside those of all products. Where they come from: SPEED.md.
struct ExpertRates {
  Rates rates;               ///< attention at T 4096
  double grouped = 450e12;   ///< products of groups over long sums: our kernel, by mma.sync
  double wide = 50e12;       ///< products in fp32, of routers
  double link = 330e9;       ///< bytes/s that leave a GPU by NVLink, of 450e9
  double exchange = 20e-6;   ///< s before an exchange moves bytes
  double host_wait = 30e-6;  ///< s in which the device has no work, since the host waits for counts
};
ExpertRates own_kernels();
/// cuDNN's attention, and grouped products at the rate of the other products.
ExpertRates vendors_kernels();
/// The same as others run them: not the same bits twice, so without what cuDNN's deterministic backward costs.
ExpertRates others_kernels();

/// A model with experts on eight GPUs of a node. Each tensor rank holds whole experts (moe.tensor = "experts").
struct ExpertRun {
  std::string name;
  model::ModelConfig model;
  int64_t expert = 8, tensor = 1;
  int64_t T = 4096, micro_batch = 1, sequences = 512;  ///< tokens of a sample; samples of a micro-batch, of a step
  bool recompute = true;                               ///< whole blocks
  double crossing = 1;  ///< rows that cross, of the k of a token: DeepEP sends a token once to a rank
  int64_t ranks() const { return expert * tensor; }
};
model::ModelConfig qwen3_30b_a3b();
std::vector<ExpertRun> expert_runs();

/// A rate of qwen3_30b_a3b that others have published, and the run of ours that is nearest to theirs.
struct PublishedExperts {
  std::string who, differs;
  int64_t gpus = 8;
  double tokens_per_second = 0, tflops = 0;  ///< of a GPU
  ExpertRun nearest;
};
std::vector<PublishedExperts> published_experts();

/// Like `predict`, of each GPU: the share of the peak and the tokens per second of one. `load` is the number of rows of
/// the rank that has the most, divided by the mean over ranks: all wait for it. Recomputed work has lines of its own.
Prediction predict(const ExpertRun& run, const ExpertRates& rates, int64_t launches_of_a_block, double load);

/// Like `interval` of a shape, at balance: also of grouped products, links and what the host takes.
Interval interval(const ExpertRun& run, const ExpertRates& rates, int64_t launches_of_a_block);

/// Bytes of a micro-batch's rows that leave a rank in one direction, at balance.
double crossing_bytes(const ExpertRun& run);

/// Bytes of a rank's memory.
struct RankMemory {
  double weights = 0, gradients = 0;  ///< 2 and 4 bytes a parameter that this rank holds
  double optimizer = 0;               ///< master, m, v: 12 bytes a parameter that this rank updates
  double blocks = 0;                  ///< what the blocks keep of a micro-batch for backward
  double working = 0;                 ///< what one block needs while it runs, and logits
  double total() const { return weights + gradients + optimizer + blocks + working; }
};
RankMemory memory_of_a_rank(const ExpertRun& run, double load);

}  // namespace ashlar::evidence
