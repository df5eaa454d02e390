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

/// What to save and where. Everything is read only and must outlive the call.
struct SaveArgs {
  comm::ControlPlane& ranks;      ///< all ranks of the run, each with its own tensors; one rank: that of a LoneRank
  std::filesystem::path run_dir;  ///< the checkpoint becomes RUN_DIR/checkpoints/step-00001234
  const nn::ParameterStore& store;
  const optim::Optimizer* optimizer = nullptr;  ///< null: the values in their storage dtype, no state; one replica
  TrainingState state;                          ///< state.step names the directory
  std::string_view config_toml;
  std::string_view tokenizer_json;
  io::Metadata metadata;
  std::vector<DataRecord> data;  ///< what the run reads
  /// Rank 0's thread calls `check` before it makes the directory and again before the checkpoint gets its name, and
  /// `committed` once it has it. What they throw fails the save; after `committed` the checkpoint stays all the same.
  std::function<void()> check = {};
  std::function<void()> committed = {};
  int64_t keep = 0;  ///< newest good checkpoints to keep, this one included; 0 = all, for a Retention or for ever
};

struct Saved {
  std::filesystem::path path;
  int64_t bytes = 0;  ///< of all files, manifest included
  double seconds = 0;
  std::vector<std::filesystem::path> removed;  ///< older checkpoints by `keep`
  std::vector<std::string> warnings;           ///< rank 0's, of damaged ones among them
};

/// Writes one checkpoint by a BackgroundSave and waits for it; called by all ranks with the same state, texts and
/// `keep`, and returns the same on all of them, once the checkpoint is there and has been read back. With an optimizer:
/// its owned master weights in the accumulate dtype and state tensors (AdamW: NAME.m, NAME.v). Counted tensors only: of
/// several copies one is stored, padded vocabulary rows are not. Host memory is bounded by 16 MiB, whatever the model,
/// and on rank 0 by the manifest. The directory has the suffix `.partial` until every file is durable and is then
/// renamed, so a process killed at any moment leaves the checkpoints of before, or those and the new one. A checkpoint
/// of the same step is replaced. Retention comes last and as Retention does it: only checkpoints that verify in full
/// count, the new one among them. Errors of any rank are thrown by all, as comm::AllRanksError: full disk or size limit
/// exit 6, a directory that is unwritable or not visible to every rank exit 2; what was there before stays, the partial
/// directory is removed (see PartialDirectory::commit for the one error after which the new checkpoint stays). The
/// process must ignore SIGXFSZ to get EFBIG instead of a signal.
Saved save(const Ctx& ctx, const SaveArgs& args);

/// A named stream of tensors for write_tensors: `produce` is called once a tensor, in order, and hands all its bytes
/// to `emit`, in any number of parts.
struct TensorSource {
  using Emit = std::function<void(std::span<const std::byte>)>;
  std::vector<io::TensorSpec> tensors;  ///< global names and shapes; dtypes as the source has them
  std::function<void(const io::TensorSpec& tensor, const Emit& emit)> produce;
};

struct WriteTensorsArgs {
  std::filesystem::path dir;  ///< the checkpoint itself; must not exist, or be an empty directory
  const TensorSource& source;
  std::string_view config_toml;
  std::string_view tokenizer_json;
  io::Metadata metadata;
};

/// Writes a weights-only checkpoint (no state of the run or the optimizer) at `dir`, as safely as `save` and without
/// holding a whole tensor unless the source does. Input error when `dir` holds something already.
Saved write_tensors(const WriteTensorsArgs& args);

}  // namespace ashlar::checkpoint
