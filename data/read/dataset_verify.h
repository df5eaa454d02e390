#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ashlar::data {

struct VerifyReport {
  int64_t files = 0;
  int64_t bytes = 0;
  int64_t chunks = 0;
  std::vector<std::string> damage;  ///< one line per error, at most 100: file, HDF5 dataset, chunk
};

/// Reads every byte of a dataset and finds any flipped bit. Checks the manifest against its checksum, each shard file
/// against its size and checksum, and the checksum of each chunk of each HDF5 dataset. Also checks that the ids are in
/// the vocabulary and that the starts of documents ascend. The report lists the damage. Throws an input error when
/// there is no dataset. `progress`, if given, is called again and again with the bytes of shards that were checked, and
/// of all shards.
VerifyReport verify_dataset(const std::string& directory,
                            const std::function<void(int64_t done, int64_t total)>& progress = {});

}  // namespace ashlar::data
