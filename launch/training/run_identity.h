#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "data/read/batch_stream.h"
#include "launch/config/run_config.h"
#include "parallel/checkpoint/manifest.h"
#include "parallel/comm/control_plane.h"

/// Identity of a run: its configuration and the content of its data, at any path.
namespace ashlar::training {

/// Record of a run in a checkpoint that it wrote.
struct Origin {
  std::filesystem::path path;
  checkpoint::Manifest manifest;  ///< without files and tensors
  config::RunConfig config;       ///< from the manifest; for an import only the model
};

/// The checkpoint at `path`; of a run directory the newest one with a readable manifest. Nothing if there is none.
/// Called by all ranks; rank 0 reads. Damaged-data error if `path` itself is a damaged checkpoint.
std::optional<Origin> find_origin(const std::filesystem::path& path, comm::ControlPlane& ranks);

/// Finds the origin in this process alone.
std::optional<Origin> find_origin(const std::filesystem::path& path);

/// For commands that only count or measure: sets model keys that are not given to the values of run.init_from, if that
/// is given and exists. Returns those keys.
std::vector<config::DerivedValue> take_start(config::RawConfig& raw);

/// Digests of the sources of a run, in order, as its checkpoints record them.
std::vector<checkpoint::DataRecord> data_records(std::span<const data::WeightedDataset> datasets);

/// A run that is being started: compared with the checkpoint that it continues.
struct StartedRun {
  const config::RunConfig& config;
  std::span<const checkpoint::DataRecord> data;
};

/// Lines to log when a run continues from a checkpoint.
struct Continuation {
  std::vector<std::string> notes, warnings;
  void say(Log& log) const;
};

/// Throws config::ConfigError with every fixed key that differs and every source whose tokenizer, tokens, weight or
/// order changed. With data.allow_change changes of data become notes. The same tokens at another path are no change.
/// One warning when the checkpoint lacks the information.
Continuation check_continuation(const Origin& origin, const StartedRun& run);
/// check_continuation for a caller that has only the path and manifest of the checkpoint.
Continuation check_continuation(const std::filesystem::path& path, const checkpoint::Manifest& manifest,
                                const StartedRun& run);

/// Check for a run that starts from initial weights (run.init_from), where only the tokenizer must agree. Called before
/// the sizes of the vocabularies are compared, since this error says more. `data` may be empty when no dataset could be
/// opened.
Continuation check_start(const Origin& origin, const config::RawConfig& raw,
                         std::span<const checkpoint::DataRecord> data);

/// The sources of a mixture must share a tokenizer: an error text naming the first that does not, or an empty one.
std::string mixture_problem(std::span<const data::WeightedDataset> datasets);

}  // namespace ashlar::training
