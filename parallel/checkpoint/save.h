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

/// The content of a checkpoint and the place to write it. The members are only read, and objects to which they refer
/// must outlive the call.
struct SaveArgs {
  comm::ControlPlane& ranks;      ///< all ranks of the run; each rank saves the tensors of its `store`
  std::filesystem::path run_dir;  ///< the checkpoint becomes RUN_DIR/checkpoints/step-00001234
  const nn::ParameterStore& store;
  /// Null: saves params in their storage dtype, without optimizer state. This requires a single data-parallel replica.
  const optim::Optimizer* optimizer = nullptr;
  TrainingState state;  ///< state.step names the directory
  std::string_view config_toml;
  std::string_view tokenizer_json;
  io::Metadata metadata;
  std::vector<DataRecord> data;  ///< data sources of the run
  /// Rank 0's background thread calls `check` before it creates the directory and again before it renames the directory
  /// to its final name, and calls `committed` after the rename. If either function throws, the save fails; if
  /// `committed` throws, the checkpoint stays.
  std::function<void()> check = {};
  std::function<void()> committed = {};
  int64_t keep = 0;  ///< number of newest valid checkpoints to keep, including this one; 0: keep all
};

struct Saved {
  std::filesystem::path path;
  int64_t bytes = 0;  ///< size of all files, including the manifest
  double seconds = 0;
  std::vector<std::filesystem::path> removed;  ///< older checkpoints removed by `keep`
  std::vector<std::string> warnings;           ///< damage found in this checkpoint; on rank 0 also Retention's warnings
};

/// Writes one checkpoint with a BackgroundSave and waits for it. Called by all ranks with the same state, texts and
/// `keep`; returns the same result on all ranks (except `warnings`), after the checkpoint was written and read back.
/// With an optimizer it saves each rank's shard of the master weights in the accumulate dtype and of the state tensors
/// (AdamW: NAME.m, NAME.v). A tensor that several ranks hold is stored once; padded vocabulary rows are not stored. The
/// save uses at most 16 MiB of host memory for a model of any size; rank 0 also holds the manifest.
///   The directory has the suffix `.partial` until every file is durable, and is then renamed. So a process killed at
/// any moment leaves the earlier checkpoints, with or without the new one. A checkpoint of the same step is replaced.
/// Retention runs last: only fully verified checkpoints count, including the new one.
///   If any rank fails, all ranks throw a comm::AllRanksError: exit code 6 for a full disk or a size limit; 2 for a
/// directory that is unwritable or not visible to every rank. Earlier checkpoints are then kept and the partial
/// directory is removed (see PartialDirectory::commit for the errors after which the new checkpoint stays). The process
/// must ignore SIGXFSZ; otherwise a file size limit kills it instead of causing an error.
Saved save(const Ctx& ctx, const SaveArgs& args);

/// Tensors for write_tensors. `produce` is called once for each tensor, in order, and passes all bytes of the tensor to
/// `emit`, in any number of parts.
struct TensorSource {
  using Emit = std::function<void(std::span<const std::byte>)>;
  std::vector<io::TensorSpec> tensors;  ///< global names and shapes, with the dtypes in which `produce` emits them
  std::function<void(const io::TensorSpec& tensor, const Emit& emit)> produce;
};

struct WriteTensorsArgs {
  std::filesystem::path dir;  ///< the checkpoint directory; it must be missing or empty
  const TensorSource& source;
  std::string_view config_toml;
  std::string_view tokenizer_json;
  io::Metadata metadata;
};

/// Writes a weights-only checkpoint (no state of run or optimizer) to `dir`, as durably as `save`. A whole tensor is in
/// memory only if the source emits it in one part. Throws an input error when `dir` is not empty.
Saved write_tensors(const WriteTensorsArgs& args);

}  // namespace ashlar::checkpoint
