#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/build/dataset_builder.h"
#include "data/read/batch_stream.h"
#include "data/shards/manifest.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {

/// What a test dataset holds.
struct DatasetSpec {
  std::vector<int32_t> train, validation;
  std::vector<int64_t> shard_tokens;  ///< sizes of train shards but the last; whole chunks
  bool wide = false;
};

/// Writes a bytes dataset straight through ShardWriter and manifest_text, without the builder.
void write_dataset(const std::string& directory, const DatasetSpec& spec);

/// Datasets by path and weight, for a TrainStream.
std::vector<WeightedDataset> opened(const std::vector<std::pair<std::string, double>>& sources);

/// n pseudo-random byte ids with the end-of-document id about every `document` tokens.
std::vector<int32_t> random_tokens(int64_t n, int64_t document, uint64_t seed);

/// Positions in a part's stream where the documents of one shard begin.
std::vector<int64_t> document_starts(const TokenDataset& dataset, Part part, int64_t shard);

/// A manifest's text with the checksum that its other lines call for.
std::string resealed(const std::string& manifest);

std::string read_all(const std::string& path);
void write_all(const std::string& path, const std::string& bytes);
/// Every file of a folder by name.
std::map<std::string, std::string> files_of(const std::string& directory);
/// Writes a file below a folder of tests, the folders on its way too, and returns its path.
std::string put_file(const testing::ScratchDir& dir, const std::string& name, const std::string& bytes);

/// What a build that must fail says: an input error of one line. "nothing was thrown" when it does not fail.
std::string build_error(const BuildOptions& options);

}  // namespace ashlar::data
