#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/nn/parameter.h"
#include "core/optim/optimizer.h"
#include "parallel/checkpoint/reader.h"

namespace ashlar::checkpoint {

/// A tensor that a model has: global name and shape.
struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
};

/// Throws an input error that lists, in one line, every tensor that the checkpoint lacks, has too many, or has in
/// another shape (expected, got). Looks at weights only.
void check_same_model(const CheckpointReader& reader, std::span<const ExpectedTensor> model);

/// Fills the weights. With an optimizer: its master weights, then publishes them (moments stay as they are); without:
/// the store's values. Any of F64, F32, F16, BF16 is converted on the way: to fp64 exactly, to fp32 with one rounding
/// to nearest even, to bf16 through fp32, so that values equal what a run would publish from its master.
/// Host memory is bounded. Errors: another model exit 2 (nothing has been changed then), damage exit 3.
void load_weights(const Ctx& ctx, CheckpointReader& reader, nn::ParameterStore& store, optim::Optimizer* optimizer);

/// Weights and moments to the bit, for continuing a run. Input error when the checkpoint has no moments or state, or
/// was written in another accumulate dtype. Returns where the run stands.
TrainingState load_training(const Ctx& ctx, CheckpointReader& reader, nn::ParameterStore& store,
                            optim::Optimizer& optimizer);

}  // namespace ashlar::checkpoint
