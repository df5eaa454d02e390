#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ashlar::data {

struct VerifyReport {
  int64_t files = 0;
  int64_t bytes = 0;
  int64_t chunks = 0;
  std::vector<std::string> damage;  ///< one line each: file, then dataset and chunk if known
};

/// Reads every byte of a dataset and finds any flipped bit. Checks the manifest against its checksum; each shard
/// against its size and the checksum of the file; each chunk of each HDF5 dataset; that the ids are in the vocabulary;
/// and that the starts of documents ascend. Throws an input error when there is no dataset.
VerifyReport verify_dataset(const std::string& directory);

}  // namespace ashlar::data
