#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/config/run_config.h"
#include "launch/plan/step_time.h"

/// Steps that others measured on H100 SXM GPUs, eight in a machine, and published with their layouts.
namespace ashlar::testing {

struct PublishedModel {
  std::string name;
  int64_t layers, width, heads, ffn;
  bool gated, tied;
};

struct PublishedStep {
  const PublishedModel* model;
  int64_t tensor, pipeline, data, micro_batch, global_batch, virtual_stages;
  double utilization;    ///< of 989 TFLOP/s, in %; flops of attention in full
  bool data_overlaps;    ///< sums of gradients run beside the last backward
  bool tensor_overlaps;  ///< forward communication of tensor ranks runs beside products
  int64_t gpus() const { return tensor * pipeline * data; }
};

/// Megatron-LM, README.md: images/model_table.png and the settings below it (2024-07): vocabulary 131,072, samples of
/// 4,096 tokens, bf16, the communication of all axes overlapped with computation. Utilization here is the table's
/// TFLOP/s over 989.4. Not published, and assumed: one sample a micro-batch, an interleaved schedule with two layers a
/// chunk, sequence parallelism, feed-forward networks of four times the width without gate, an untied head.
std::vector<PublishedStep> megatron_steps();

/// nanotron, docs/benchmark_summary.svg and scripts/scaling_benchmarks.py (2025-02): the best layout of each model on
/// each number of machines; vocabulary 131,072, samples of 4,096 tokens, 256 of them in a step, sequence parallelism,
/// gradients in fp32. Sums of gradients run beside the last backward with ZeRO stage 0 alone (trainer.py). Its flops
/// (get_flops in models/llama.py) count attention in full.
std::vector<PublishedStep> nanotron_steps();

/// The configuration of a published step.
config::RunConfig config_of(const PublishedStep& step);
/// What the step's system overlaps, with this time of kernels relative to the device's rates.
plan::System system_of(const PublishedStep& step, double kernels);
/// The utilization in % that a step of this many seconds has, by the same count of flops.
double utilization(const PublishedStep& step, const plan::StepTime& time, double seconds);

}  // namespace ashlar::testing
