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

/// A tensor that a model has: global name and shape.
struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
};

/// Throws an input error that lists, in one line, every tensor that the checkpoint lacks, has too many, or has in
/// another shape (expected, got). Looks at weights only.
void check_same_model(const CheckpointReader& reader, std::span<const ExpectedTensor> model);

/// Called by all ranks: opens a checkpoint on each; rank 0 alone reads the manifest. Errors of any rank are thrown by
/// all, that of one which does not see the directory among them.
CheckpointReader open_checkpoint(const std::filesystem::path& path, comm::ControlPlane& ranks);

struct LoadArgs {
  comm::ControlPlane& ranks;  ///< that hold the model together, each its own tensors; one rank: that of a LoneRank
  CheckpointReader& reader;   ///< this rank's, of the same checkpoint on all
  nn::ParameterStore& store;
  optim::Optimizer* optimizer = nullptr;
};

/// Fills the weights; called by all ranks, whatever mesh wrote the checkpoint, and each reads what it needs. With an
/// optimizer: its owned master weights, then copies them to the params (state tensors stay as they are); the other
/// values of the store are other replicas' to copy: gather them then (zero::DataParallel::start_param_sync,
/// wait_param_sync). Without: all of the store's values. Any of F64, F32, F16, BF16 is converted on the way: to fp64
/// exactly, to fp32 with one rounding to nearest even, to bf16 through fp32, so that values equal what a run would copy
/// from its master. Host memory is bounded. Errors of any rank are thrown by all, as comm::AllRanksError: another model
/// exit 2, compared with the tensors of all ranks (nothing has been changed then), damage exit 3, a value that is not
/// finite exit 4 (FiniteCheck).
void load_weights(const Ctx& ctx, const LoadArgs& args);

/// Weights and the optimizer's state to the bit, for continuing a run, otherwise as load_weights with an optimizer,
/// which must be given. Input error when the checkpoint has no state, or was written in another accumulate dtype;
/// damage when it lacks a state tensor of this optimizer, or has one more. Returns where the run stands.
TrainingState load_training(const Ctx& ctx, const LoadArgs& args);

}  // namespace ashlar::checkpoint
