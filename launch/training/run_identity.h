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

/// Identity of a run: its configuration and the content of its data, at whatever path the data is.
namespace ashlar::training {

/// The run that wrote a checkpoint, as recorded in the checkpoint.
struct Origin {
  std::filesystem::path path;
  checkpoint::Manifest manifest;  ///< without the lists of files and tensors
  config::RunConfig config;       ///< from the manifest; an imported checkpoint has only the model section
};

/// Returns the checkpoint at `path`. If `path` is a run directory, returns its newest checkpoint with a readable
/// manifest, or nothing if there is none. Called by all ranks; rank 0 reads. Damaged-data error if `path` itself is a
/// damaged checkpoint.
std::optional<Origin> find_origin(const std::filesystem::path& path, comm::ControlPlane& ranks);

/// find_origin for a single process, without communication.
std::optional<Origin> find_origin(const std::filesystem::path& path);

/// Takes the values of the model keys that `raw` does not set from the checkpoint that run.init_from names. No effect
/// if run.init_from is not given or that checkpoint does not exist. Returns the keys that got a value. For commands
/// that only count or measure.
std::vector<config::DerivedValue> apply_start_model(config::RawConfig& raw);

/// Returns the digests of a run's data sources, in order, as its checkpoints record them.
std::vector<checkpoint::DataRecord> data_records(std::span<const data::WeightedDataset> datasets);

/// Configuration and data of a run that is being started, to be compared with the checkpoint from which it continues.
struct StartedRun {
  const config::RunConfig& config;
  std::span<const checkpoint::DataRecord> data;
};

/// Lines to log when a run continues from a checkpoint.
struct Continuation {
  std::vector<std::string> notes, warnings;
  void say(Log& log) const;
};

/// Checks that `run` may continue from the checkpoint `origin`. If not, throws a config::ConfigError that names every
/// key that must not change but differs, and every data source whose tokenizer, tokens, weight or order changed. With
/// data.allow_change, changes of the data are notes instead. A source at a new path with unchanged tokens is not a
/// change. If the checkpoint does not record its data, there is one warning.
Continuation check_continuation(const Origin& origin, const StartedRun& run);
/// check_continuation for a caller that has only the path and manifest of the checkpoint.
Continuation check_continuation(const std::filesystem::path& path, const checkpoint::Manifest& manifest,
                                const StartedRun& run);

/// How a run loads a checkpoint that has other buffers of experts than its model.
struct ExpertBuffers {
  std::vector<std::string> optional;  ///< for checkpoint::LoadArgs
  std::vector<std::string> notes;     ///< lines to log
};
/// A selection bias that the checkpoint lacks begins at 0, and one that the model lacks is left out. Likewise the
/// counts of moe.balance = "previous", which only a resumed run loads (`resumes`).
ExpertBuffers expert_buffers(const model::ModelConfig& stored, const model::ModelConfig& wanted, bool resumes);
/// expert_buffers of the checkpoint at `path`, whose manifest is known.
ExpertBuffers expert_buffers(const std::filesystem::path& path, const checkpoint::Manifest& manifest,
                             const model::ModelConfig& wanted, bool resumes);

/// Checks a run that starts from the weights of `origin` (run.init_from): its data must have the tokenizer of `origin`.
/// With data.allow_change, another tokenizer is a note instead of an error. Called before the vocabulary sizes are
/// compared, since an error about the tokenizer is more specific. `data` may be empty if no dataset could be opened.
Continuation check_start(const Origin& origin, const config::RawConfig& raw,
                         std::span<const checkpoint::DataRecord> data);

/// Checks that the data sources of a mixture have the same tokenizer. Returns an error text that names the first source
/// whose tokenizer differs, or an empty text.
std::string mixture_problem(std::span<const data::WeightedDataset> datasets);

}  // namespace ashlar::training
