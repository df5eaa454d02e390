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

/// The manifests of datasets, each read once per machine, by its first rank, which sends the bytes to the other ranks
/// there. The manifest of a dataset of 150,000 shards has tens of megabytes, and a thousand ranks that read it at once
/// overload the file system.
class SharedManifests {
 public:
  /// Called by all ranks. Read errors are kept and thrown by `open`.
  SharedManifests(comm::Bootstrap& bootstrap, const std::vector<std::string>& paths);

  /// The dataset at one of the paths. Throws the error of reading its manifest on every rank of the machine; input
  /// error for a path that the machine's first rank did not have.
  std::unique_ptr<data::TokenDataset> open(const std::string& path) const;

 private:
  struct Manifest {
    std::string text;  ///< the manifest, or the text of the error
    ExitCode code = ExitCode::kDone;
  };
  std::map<std::string, Manifest> manifests_;
};

/// Opens every shard of the datasets once, without reading its chunks, and compares it with its manifest. Rank r of p
/// checks shards r, r + p, ... Called by all ranks. If shards are missing, truncated or do not match their manifest,
/// all ranks throw the same error (exit code 3), the one found by the lowest rank.
void check_shards(comm::ControlPlane& ranks, const std::vector<data::WeightedDataset>& datasets);

/// Logs the warnings of the datasets (TokenDataset::warnings), each once, on rank 0.
void log_dataset_warnings(comm::ControlPlane& ranks, const std::vector<data::WeightedDataset>& datasets, Log& log);

}  // namespace ashlar::training
