#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/nn/parameter.h"
#include "core/optim/optimizer.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::checkpoint {

/// A tensor of the model: global name and shape.
struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
};

/// Throws an input error that lists, in one line, every tensor that is missing in the checkpoint, unexpected, or of
/// another shape (expected, got). Considers weights only.
void check_same_model(const CheckpointReader& reader, std::span<const ExpectedTensor> model);

/// Called by all ranks: opens a checkpoint on each; only rank 0 reads the manifest. An error of any rank is thrown by
/// all, including that of a rank that does not see the directory.
CheckpointReader open_checkpoint(const std::filesystem::path& path, comm::ControlPlane& ranks);

struct LoadArgs {
  comm::ControlPlane& ranks;  ///< all ranks of the model, each with its own tensors; a LoneRank's for one rank
  CheckpointReader& reader;   ///< this rank's reader of the same checkpoint
  nn::ParameterStore& store;
  optim::Optimizer* optimizer = nullptr;
};

/// Fills the weights from a checkpoint written on any mesh; called by all ranks, and each reads the blocks it needs.
/// With an optimizer: fills its owned master weights, then copies them to the params (state tensors are unchanged).
/// Other values of the store must then be gathered from other replicas (zero::DataParallel::start_param_sync,
/// wait_param_sync). Without an optimizer: fills all values of the store. F64, F32, F16 and BF16 are converted: to fp64
/// exactly, to fp32 with one rounding to nearest even, to bf16 through fp32, so that values equal a run's copies of its
/// master weights. Host memory is bounded. Errors of any rank are thrown by all, as comm::AllRanksError: another model
/// exit 2, compared over the tensors of all ranks (nothing is changed then), damage exit 3, a non-finite value exit 4
/// (FiniteCheck).
void load_weights(const Ctx& ctx, const LoadArgs& args);

/// Loads weights and optimizer state bitwise, to resume a run; otherwise as load_weights with an optimizer, which must
/// be given. Input error when the checkpoint has no state or another accumulate dtype; damaged-data error when a state
/// tensor of this optimizer is missing, or one is unexpected. Returns the progress of the run.
TrainingState load_training(const Ctx& ctx, const LoadArgs& args);

}  // namespace ashlar::checkpoint
