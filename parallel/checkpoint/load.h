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

/// Compares the weights of a checkpoint with those of the model. The input error lists, in one line, every tensor that
/// is missing, unexpected, or of another shape (expected, got).
void check_same_model(const CheckpointReader& reader, std::span<const ExpectedTensor> model);

/// Called by all ranks. Opens a checkpoint on each rank; only rank 0 reads the manifest. An error of one rank, e.g.
/// that it does not see the directory, is thrown on all ranks.
CheckpointReader open_checkpoint(const std::filesystem::path& path, comm::ControlPlane& ranks);

struct LoadArgs {
  comm::ControlPlane& ranks;  ///< all ranks of the model, each with its own tensors; a LoneRank's for one rank
  CheckpointReader& reader;   ///< this rank's reader of the same checkpoint
  nn::ParameterStore& store;
  optim::Optimizer* optimizer = nullptr;
};

/// Fills the weights from a checkpoint that was written on any mesh. Called by all ranks; each reads the blocks it
/// needs. With an optimizer it fills the owned master weights and copies them to the params (state tensors are
/// unchanged). The other values of the store must then be gathered from other replicas
/// (zero::DataParallel::start_param_sync, wait_param_sync). Without an optimizer it fills all values of the store. F64,
/// F32, F16 and BF16 are converted to fp64 exactly, to fp32 with one rounding to nearest even, and to bf16 through
/// fp32, so that the values equal a run's copies of its master weights. Host memory is bounded. Errors of any rank are
/// thrown by all, as comm::AllRanksError: another model exit 2, compared over the tensors of all ranks (nothing is
/// changed then), damage exit 3, a non-finite value exit 4 (FiniteCheck).
void load_weights(const Ctx& ctx, const LoadArgs& args);

/// Loads weights and optimizer state bitwise, to resume a run. Otherwise as load_weights with an optimizer, which must
/// be given. Input error when the checkpoint has no state or another accumulate dtype; damaged-data error when a state
/// tensor of this optimizer is missing, or one is unexpected. Returns the progress of the run.
TrainingState load_training(const Ctx& ctx, const LoadArgs& args);

}  // namespace ashlar::checkpoint
