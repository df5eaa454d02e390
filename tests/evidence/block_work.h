#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "parallel/model/model_config.h"

namespace ashlar::evidence {

/// What one kernel does for one block in a training step: all launches of it together.
struct BlockKernel {
  int64_t launches = 0;
  int64_t bytes = 0;  ///< of global memory, in sectors of 32; none is known of products
};

/// Of a step on one rank in bf16: a model of two blocks less a model of one, each trained for a step on the watched
/// emulated device. Products are the kernel "gemm".
std::map<std::string, BlockKernel> work_of_a_block(model::ModelConfig config, int64_t tokens);

int64_t launches_of(const std::map<std::string, BlockKernel>& block);

/// The block forms whose launches are told, narrow enough for an emulator.
model::ModelConfig narrow_gpt2();
model::ModelConfig narrow_qwen(model::Topology topology);
/// Qwen3's block with experts.
model::ModelConfig narrow_experts();

}  // namespace ashlar::evidence
