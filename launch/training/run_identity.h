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

/// A run, as recorded in a checkpoint that it wrote.
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

/// Sets the model keys that are not given to their values in run.init_from, if that is given and exists. Returns these
/// keys. For commands that only count or measure.
std::vector<config::DerivedValue> apply_start_model(config::RawConfig& raw);

/// Digests of the sources of a run, in order, as its checkpoints record them.
std::vector<checkpoint::DataRecord> data_records(std::span<const data::WeightedDataset> datasets);

/// The data of a run that is being started, to be compared with the checkpoint that it continues.
struct StartedRun {
  const config::RunConfig& config;
  std::span<const checkpoint::DataRecord> data;
};

/// Lines to log when a run continues from a checkpoint.
struct Continuation {
  std::vector<std::string> notes, warnings;
  void say(Log& log) const;
};

/// Throws config::ConfigError that names every fixed key that differs, and every source whose tokenizer, tokens, weight
/// or order changed. With data.allow_change, changes of the data are notes. The same tokens at another path are no
/// change. If the checkpoint lacks the information, there is one warning.
Continuation check_continuation(const Origin& origin, const StartedRun& run);
/// check_continuation for a caller that has only the path and manifest of the checkpoint.
Continuation check_continuation(const std::filesystem::path& path, const checkpoint::Manifest& manifest,
                                const StartedRun& run);

/// The check for a run that starts from given weights (run.init_from): only the tokenizer must agree. Called before the
/// sizes of the vocabularies are compared, since this error is more specific. `data` may be empty if no dataset could
/// be opened.
Continuation check_start(const Origin& origin, const config::RawConfig& raw,
                         std::span<const checkpoint::DataRecord> data);

/// Checks that the sources of a mixture have the same tokenizer. Returns an error text that names the first source with
/// another one, or an empty text.
std::string mixture_problem(std::span<const data::WeightedDataset> datasets);

}  // namespace ashlar::training
