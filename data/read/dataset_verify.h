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

/// Reads every byte of a dataset: the manifest against its checksum, each shard against its size and whole-file
/// checksum, then each chunk of each HDF5 dataset, ids against the vocabulary, document starts for order. A flipped bit
/// anywhere is found. Throws an input error when there is no dataset.
VerifyReport verify_dataset(const std::string& directory);

}  // namespace ashlar::data
