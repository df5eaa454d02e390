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

/// What makes two runs the same: their configuration, and what their data holds, wherever it lies.
namespace ashlar::training {

/// What a checkpoint says of the run that made it.
struct Origin {
  std::filesystem::path path;
  checkpoint::Manifest manifest;  ///< without files and tensors
  config::RunConfig config;       ///< read from it; of an import only the model
};

/// The checkpoint at `path`, or of a run directory the newest whose manifest reads; nothing where there is none. Called
/// by all ranks; rank 0 reads. Damaged error for a checkpoint named itself.
std::optional<Origin> find_origin(const std::filesystem::path& path, comm::ControlPlane& ranks);

/// The same, read by this process alone.
std::optional<Origin> find_origin(const std::filesystem::path& path);

/// For a command that only counts or measures a configuration: gives its open model keys the values of run.init_from,
/// when that is given and there. Returns what was taken.
std::vector<config::DerivedValue> take_start(config::RawConfig& raw);

/// What the sources of a run hold, in their order, as its checkpoints keep it.
std::vector<checkpoint::DataRecord> data_records(std::span<const data::WeightedDataset> datasets);

/// A run as it is started: what is compared with the checkpoint it continues from.
struct StartedRun {
  const config::RunConfig& config;
  std::span<const checkpoint::DataRecord> data;
};

/// What is to be said when a run continues from a checkpoint.
struct Continuation {
  std::vector<std::string> notes, warnings;
  void say(Log& log) const;
};

/// Throws config::ConfigError naming every fixed key that differs and every source whose tokenizer, tokens, weight or
/// place changed, unless data.allow_change, which makes notes of those. The same tokens at another path are no change.
/// One warning when the checkpoint cannot tell.
Continuation check_continuation(const Origin& origin, const StartedRun& run);
/// The same with what a reader of the checkpoint at `path` has at hand.
Continuation check_continuation(const std::filesystem::path& path, const checkpoint::Manifest& manifest,
                                const StartedRun& run);

/// The same for weights to begin from (run.init_from), where only the tokenizer must agree: before the vocabularies are
/// compared, which would say less. `data` may be empty, when no dataset could be opened.
Continuation check_start(const Origin& origin, const config::RawConfig& raw,
                         std::span<const checkpoint::DataRecord> data);

/// Sources of one mixture share a tokenizer: an error text naming the first that does not, or nothing.
std::string mixture_problem(std::span<const data::WeightedDataset> datasets);

}  // namespace ashlar::training
