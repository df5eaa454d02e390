#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "data/read/batch_stream.h"
#include "parallel/comm/bootstrap.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::training {

/// The manifests of the run's datasets. The first rank of each machine reads each manifest once and sends its text to
/// the other ranks of the machine. The manifest of a dataset of 150,000 shards has tens of megabytes, so a thousand
/// ranks that read it at once would overload the file system.
class SharedManifests {
 public:
  /// Called by all ranks. A read error is not thrown here but by `open`.
  SharedManifests(comm::Bootstrap& bootstrap, const std::vector<std::string>& paths);

  /// Opens the dataset at one of the constructor's `paths`. If its manifest could not be read, throws the error of that
  /// read, on every rank of the machine. Input error if the first rank of this machine was not given this path.
  std::unique_ptr<data::TokenDataset> open(const std::string& path) const;

 private:
  struct Manifest {
    std::string text;  ///< the manifest, or the text of the error
    ExitCode code = ExitCode::kDone;
  };
  std::map<std::string, Manifest> manifests_;
};

/// Opens each shard of the datasets on one rank, without reading its chunks, and compares it with its manifest. The
/// shards of all datasets are numbered in sequence: rank r of p ranks checks shards r, r + p, ... If a shard is
/// missing, truncated or does not match its manifest, all ranks throw the same error (exit code 3): the one found by
/// the lowest rank. Called by all ranks.
void check_shards(comm::ControlPlane& ranks, const std::vector<data::WeightedDataset>& datasets);

/// Logs the warnings of the datasets (TokenDataset::warnings), each once, on rank 0.
void log_dataset_warnings(comm::ControlPlane& ranks, const std::vector<data::WeightedDataset>& datasets, Log& log);

}  // namespace ashlar::training
