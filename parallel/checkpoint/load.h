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
  enum class Kind { kTrained, kBuffer, kTrainingState } kind = Kind::kTrained;  ///< buffers: by nn::BufferUse

  bool operator==(const ExpectedTensor&) const = default;
};

/// Compares the weights of a checkpoint with the weights of the model. Throws an input error that lists, in one line,
/// every tensor that is missing, unexpected, or of another shape (both shapes are given). `optional`: as in LoadArgs.
void check_same_model(const CheckpointReader& reader, std::span<const ExpectedTensor> model,
                      std::span<const std::string> optional = {});

/// Called by all ranks. Opens a checkpoint on each rank; only rank 0 reads the manifest. An error of one rank, e.g. a
/// directory that this rank cannot see, is thrown on all ranks.
CheckpointReader open_checkpoint(const std::filesystem::path& path, comm::ControlPlane& ranks);

struct LoadArgs {
  comm::ControlPlane& ranks;  ///< all ranks of the model; each rank loads the tensors of its `store`
  CheckpointReader& reader;   ///< this rank's reader; all ranks read the same checkpoint
  nn::ParameterStore& store;
  optim::Optimizer* optimizer = nullptr;
  /// Buffers that the checkpoint or the model may lack, by the ends of their names: those that the checkpoint lacks
  /// become zero, those that the model lacks are not read.
  std::vector<std::string> optional_buffers = {};
};

/// Fills the weights and buffers from a checkpoint that was written on any mesh. Called by all ranks; each rank reads
/// the blocks that it needs. With an optimizer, the function fills this rank's shard of the master weights and copies
/// the shard to the params; the optimizer state does not change. The caller must then all-gather the other params from
/// the other replicas (zero::DataParallel::start_param_sync, wait_param_sync). Without an optimizer, the function fills
/// all values of the store.
///   Values stored as F64, F32, F16 or BF16 are converted to fp64 exactly, to fp32 with one rounding to nearest even,
/// and to bf16 by way of fp32. So loaded bf16 params equal those that a run rounds from its fp32 master weights. The
/// buffers in host memory have a fixed maximum size.
///   If any rank fails, all ranks throw a comm::AllRanksError: exit code 2 if the checkpoint is of another model (this
/// is checked before any weight changes), 3 for damage, 4 for a non-finite value (FiniteCheck).
void load_weights(const Ctx& ctx, const LoadArgs& args);

/// Loads weights and optimizer state bitwise, to resume a run. For an optimizer with bf16 state, state in fp32 is
/// rounded to nearest even; the reverse is exact. Works like load_weights, except that an optimizer is required. Throws
/// an input error when the checkpoint has no optimizer state or was written with another accumulate dtype, and a
/// damaged-data error when an optimizer state tensor is missing or unexpected. Returns the state of the run apart from
/// its tensors.
TrainingState load_training(const Ctx& ctx, const LoadArgs& args);

}  // namespace ashlar::checkpoint
