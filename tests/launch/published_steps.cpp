#include "tests/launch/published_steps.h"

#include <array>

#include "parallel/model/flops.h"

namespace ashlar::testing {

std::vector<PublishedStep> megatron_steps() {
  static const std::array<PublishedModel, 9> kModels = {{
      {.name = "1.7B", .layers = 24, .width = 2048, .heads = 16, .ffn = 8192, .gated = false, .tied = false},
      {.name = "7.1B", .layers = 30, .width = 4096, .heads = 32, .ffn = 16384, .gated = false, .tied = false},
      {.name = "16B", .layers = 32, .width = 6144, .heads = 48, .ffn = 24576, .gated = false, .tied = false},
      {.name = "32B", .layers = 48, .width = 7168, .heads = 56, .ffn = 28672, .gated = false, .tied = false},
      {.name = "70B", .layers = 84, .width = 8192, .heads = 64, .ffn = 32768, .gated = false, .tied = false},
      {.name = "119B", .layers = 92, .width = 10240, .heads = 80, .ffn = 40960, .gated = false, .tied = false},
      {.name = "177B", .layers = 96, .width = 12288, .heads = 96, .ffn = 49152, .gated = false, .tied = false},
      {.name = "314B", .layers = 96, .width = 16384, .heads = 128, .ffn = 65536, .gated = false, .tied = false},
      {.name = "462B", .layers = 112, .width = 18432, .heads = 144, .ffn = 73728, .gated = false, .tied = false},
  }};
  return {
      {&kModels[0], 1, 1, 48, 1, 192, 1, 408.8 / 9.894, true, true},
      {&kModels[1], 2, 1, 48, 1, 192, 1, 465.9 / 9.894, true, true},
      {&kModels[2], 4, 1, 48, 1, 192, 1, 489.1 / 9.894, true, true},
      {&kModels[3], 8, 1, 48, 1, 192, 1, 459.6 / 9.894, true, true},
      {&kModels[4], 8, 2, 48, 1, 384, 21, 419.7 / 9.894, true, true},
      {&kModels[5], 8, 4, 48, 1, 768, 11, 420.5 / 9.894, true, true},
      {&kModels[6], 8, 6, 48, 1, 1152, 8, 432.8 / 9.894, true, true},
      {&kModels[7], 8, 8, 48, 1, 1536, 6, 474.4 / 9.894, true, true},
      {&kModels[8], 8, 16, 48, 1, 3072, 3, 459.9 / 9.894, true, true},
  };
}

std::vector<PublishedStep> nanotron_steps() {
  static const PublishedModel k1B{"1.34B", 16, 2048, 32, 8192, true, true},
      k3B{"3.57B", 28, 3072, 32, 8192, true, true}, k8B{"8.86B", 32, 4096, 32, 14336, true, false},
      k80B{"80B", 80, 8192, 64, 28672, true, false};
  // model, tensor, pipeline, data, micro-batch, batch, chunks a stage, utilization, overlaps
  return {
      {&k1B, 1, 2, 4, 4, 256, 1, 44.32, false, false},  {&k3B, 1, 2, 4, 2, 256, 1, 46.68, false, false},
      {&k8B, 1, 4, 2, 1, 256, 1, 45.22, false, false},  {&k1B, 1, 2, 8, 1, 256, 1, 41.59, false, false},
      {&k3B, 1, 2, 8, 2, 256, 1, 43.77, false, false},  {&k8B, 4, 1, 4, 4, 256, 1, 43.94, false, false},
      {&k1B, 1, 2, 16, 1, 256, 1, 38.38, false, false}, {&k3B, 1, 2, 16, 2, 256, 1, 40.39, false, false},
      {&k8B, 1, 2, 16, 1, 256, 1, 43.31, false, false}, {&k80B, 8, 4, 1, 1, 256, 1, 14.76, true, false},
      {&k1B, 1, 2, 32, 1, 256, 1, 32.47, false, false}, {&k3B, 1, 2, 32, 1, 256, 1, 35.53, false, false},
      {&k8B, 1, 2, 32, 1, 256, 1, 39.5, false, false},  {&k80B, 4, 16, 1, 1, 256, 1, 30.65, true, false},
      {&k1B, 2, 1, 64, 4, 256, 1, 29.46, true, false},  {&k3B, 4, 1, 32, 8, 256, 1, 34.59, true, false},
      {&k8B, 8, 1, 16, 8, 256, 1, 36.33, true, false},  {&k80B, 4, 32, 1, 1, 256, 1, 34.29, true, false},
      {&k1B, 4, 1, 64, 4, 256, 1, 23.2, true, false},   {&k3B, 4, 1, 64, 4, 256, 1, 26.77, true, false},
      {&k8B, 8, 1, 32, 8, 256, 1, 32.71, true, false},  {&k80B, 4, 16, 4, 1, 256, 1, 30.75, false, false},
      {&k1B, 2, 2, 128, 2, 256, 1, 5.25, false, false}, {&k3B, 4, 1, 128, 2, 256, 1, 10.49, false, false},
      {&k8B, 4, 1, 128, 2, 256, 1, 18.69, true, false}, {&k80B, 16, 1, 32, 2, 256, 1, 17.79, false, false},
  };
}

config::RunConfig config_of(const PublishedStep& step) {
  config::RunConfig run;
  run.run.device = config::Device::kCuda;
  model::ModelConfig& m = run.model;
  m.d_model = step.model->width;
  m.n_layers = step.model->layers;
  m.n_heads = m.n_kv_heads = step.model->heads;
  m.head_dim = m.d_model / m.n_heads;
  m.d_ff = step.model->ffn;
  m.ffn.gated = step.model->gated;
  m.tied = step.model->tied;
  m.vocab_size = 131072;
  m.rope.dims = m.head_dim;
  run.train = {.sequence_length = 4096, .global_batch = step.global_batch, .micro_batch = step.micro_batch};
  run.mesh = {.tensor = step.tensor,
              .pipeline = step.pipeline,
              .data = step.data,
              .sequence_parallel = step.tensor > 1,
              .schedule = step.virtual_stages > 1 ? pipeline::PipelineSchedule::kInterleaved
                                                  : pipeline::PipelineSchedule::k1F1B,
              .virtual_stages = step.virtual_stages};
  return run;
}

plan::System system_of(const PublishedStep& step, double kernels) {
  return {.kernels = kernels,
          .data_overlap = step.data_overlaps ? 1.0 : 0.0,
          .tensor_overlap = step.tensor_overlaps ? 1.0 : 0.0};
}

double utilization(const PublishedStep& step, const plan::StepTime& time, double seconds) {
  const config::RunConfig run = config_of(step);
  const double flops = model::flops_per_token(run.model, run.train.sequence_length).total_full();
  return 100 * flops * time.tokens / seconds / time.peak_flops;
}

}  // namespace ashlar::testing
