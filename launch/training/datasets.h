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

/// The manifests of datasets, each read once a machine: by its first rank, which hands the bytes to the others there. A
/// dataset of 150,000 shards has tens of megabytes of it, and a thousand ranks that read them at once are a burden.
class SharedManifests {
 public:
  /// Called by all ranks. What cannot be read is told by `open`.
  SharedManifests(comm::Bootstrap& bootstrap, const std::vector<std::string>& paths);

  /// The dataset at one of the paths. Throws what reading its manifest threw, on every rank of the machine; input error
  /// for a path that the machine's first rank did not have.
  std::unique_ptr<data::TokenDataset> open(const std::string& path) const;

 private:
  struct Manifest {
    std::string text;  ///< or that of the error
    ExitCode code = ExitCode::kDone;
  };
  std::map<std::string, Manifest> manifests_;
};

/// Opens every shard of the datasets once, without its chunks, and compares it with its manifest; the ranks share the
/// work: rank r of p takes shards r, r + p, ... Called by all ranks; a shard that is missing, cut short or another one
/// than it should be is one error of all (exit code 3), that of the lowest rank that found one.
void check_shards(comm::ControlPlane& ranks, const std::vector<data::WeightedDataset>& datasets);

/// What their user should know of the datasets (TokenDataset::remarks), each said once, by rank 0.
void say_remarks(comm::ControlPlane& ranks, const std::vector<data::WeightedDataset>& datasets, Log& log);

}  // namespace ashlar::training
