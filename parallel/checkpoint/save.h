#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/io/safetensors.h"
#include "core/nn/parameter.h"
#include "core/optim/optimizer.h"
#include "parallel/checkpoint/manifest.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::checkpoint {

/// The content of a checkpoint and the place to write it. Everything is only read, and must outlive the call.
struct SaveArgs {
  comm::ControlPlane& ranks;      ///< all ranks of the run, each with its own tensors; a LoneRank's for one rank
  std::filesystem::path run_dir;  ///< the checkpoint becomes RUN_DIR/checkpoints/step-00001234
  const nn::ParameterStore& store;
  const optim::Optimizer* optimizer = nullptr;  ///< null: values in their storage dtype, no state; one replica
  TrainingState state;                          ///< state.step names the directory
  std::string_view config_toml;
  std::string_view tokenizer_json;
  io::Metadata metadata;
  std::vector<DataRecord> data;  ///< data sources of the run
  /// Rank 0's thread calls `check` before it creates the directory and again before it renames the directory to its
  /// final name, and calls `committed` after that. An exception from either makes the save fail, but one from
  /// `committed` does not remove the checkpoint.
  std::function<void()> check = {};
  std::function<void()> committed = {};
  int64_t keep = 0;  ///< newest valid checkpoints to keep, including this one; 0 = all
};

struct Saved {
  std::filesystem::path path;
  int64_t bytes = 0;  ///< size of all files, including the manifest
  double seconds = 0;
  std::vector<std::filesystem::path> removed;  ///< older checkpoints removed by `keep`
  std::vector<std::string> warnings;           ///< on rank 0, including those about damaged checkpoints
};

/// Writes one checkpoint with a BackgroundSave and waits for it. Called by all ranks with the same state, texts and
/// `keep`; returns the same result on all, after the checkpoint was written and read back. With an optimizer it saves
/// the owned master weights in the accumulate dtype and state tensors (AdamW: NAME.m, NAME.v). Only main replicas are
/// stored, without padded vocabulary rows. Host memory is bounded by 16 MiB for any model, and on rank 0 by the
/// manifest. The directory has the suffix `.partial` until every file is durable and is then renamed, so a process
/// killed at any moment leaves the earlier checkpoints, with or without the new one. A checkpoint of the same step is
/// replaced. Retention runs last: only fully verified checkpoints count, including the new one. Errors of any rank are
/// thrown by all, as comm::AllRanksError: full disk or size limit exit 6, a directory that is unwritable or not visible
/// to every rank exit 2. Earlier checkpoints are kept and the partial directory is removed (see
/// PartialDirectory::commit for the one error after which the new checkpoint stays). The process must ignore SIGXFSZ to
/// get EFBIG instead of a signal.
Saved save(const Ctx& ctx, const SaveArgs& args);

/// Tensors for write_tensors. `produce` is called once for each tensor, in order, and passes all bytes of the tensor to
/// `emit`, in any number of parts.
struct TensorSource {
  using Emit = std::function<void(std::span<const std::byte>)>;
  std::vector<io::TensorSpec> tensors;  ///< global names and shapes; dtypes of the source
  std::function<void(const io::TensorSpec& tensor, const Emit& emit)> produce;
};

struct WriteTensorsArgs {
  std::filesystem::path dir;  ///< the checkpoint itself; must not exist or be empty
  const TensorSource& source;
  std::string_view config_toml;
  std::string_view tokenizer_json;
  io::Metadata metadata;
};

/// Writes a weights-only checkpoint (no state of run or optimizer) to `dir`, as safely as `save`, and without holding a
/// whole tensor unless the source does. Input error when `dir` is not empty.
Saved write_tensors(const WriteTensorsArgs& args);

}  // namespace ashlar::checkpoint
