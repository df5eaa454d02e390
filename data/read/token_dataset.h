#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/shards/fingerprint.h"
#include "data/shards/manifest.h"
#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

class ShardReader;

/// A dataset opened for reading. The constructor reads only the manifest. A shard is opened and compared with the
/// manifest when it is first read. Every read loads whole chunks and verifies their checksums. A damaged chunk, a
/// truncated shard or a shard of another dataset is a damaged-data error (exit code 3). The error names the file, and
/// for a damaged chunk also the HDF5 dataset and the chunk. Not thread-safe.
class TokenDataset {
 public:
  explicit TokenDataset(const std::string& directory);
  /// Opens a dataset. `manifest_text` is the content of its manifest.json, which the caller has read.
  TokenDataset(const std::string& directory, const std::string& manifest_text);
  ~TokenDataset();
  TokenDataset(const TokenDataset&) = delete;
  TokenDataset& operator=(const TokenDataset&) = delete;

  const std::string& directory() const { return directory_; }
  const Manifest& manifest() const { return *manifest_; }
  Fingerprint fingerprint() const { return fingerprint_of(*manifest_); }
  /// Warnings for the user, one line each, e.g. that the dataset is in the old format.
  std::vector<std::string> warnings() const;
  /// Returns a second reader of this dataset, for use in another thread. The two readers share the manifest.
  std::unique_ptr<TokenDataset> reopened() const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  int64_t tokens(Part part) const { return manifest_->part(part).tokens; }
  int64_t num_chunks(Part part) const { return (tokens(part) + kChunkTokens - 1) / kChunkTokens; }

  /// Returns the tokens of chunk `chunk` of a part: kChunkTokens tokens, or fewer for the last chunk. An id outside the
  /// vocabulary is a damaged-data error. The span is valid until the next call of read_chunk or read.
  std::span<const int32_t> read_chunk(Part part, int64_t chunk);

  /// Copies tokens [first, first + out.size()) of a part to `out`. The chunk read last is cached, so that sequential
  /// calls read each chunk once.
  void read(Part part, int64_t first, std::span<int32_t> out);

  /// Number of shards of both parts. The index in check_shard counts the shards of the train part first.
  int64_t num_shards() const;
  /// Opens one shard, compares it with the manifest without reading its chunks, and closes it. Throws a damaged-data
  /// error when the shard is missing or truncated, or when the file is another shard.
  void check_shard(int64_t shard) const;

  /// Bytes of host memory in the buffers for one chunk. Does not count the memory of open files.
  int64_t scratch_bytes() const;

 private:
  struct OpenShard {
    Part part;
    int64_t shard;
    std::unique_ptr<ShardReader> reader;
  };
  TokenDataset(std::string directory, std::shared_ptr<const Manifest> manifest);
  std::unique_ptr<ShardReader> make_reader(Part part, int64_t shard) const;
  ShardReader& open_shard(Part part, int64_t shard);

  std::string directory_;
  std::shared_ptr<const Manifest> manifest_;
  std::unique_ptr<Tokenizer> tokenizer_;
  /// Indexed by Part: the index of the first chunk of each shard, then the number of chunks.
  std::vector<int64_t> first_chunk_[2];
  std::vector<OpenShard> open_;  ///< open shards, a limited number, the most recently used last
  std::vector<uint8_t> raw_;
  std::vector<int32_t> chunk_tokens_;
  Part cached_part_ = Part::kTrain;
  int64_t cached_chunk_ = -1;
};

}  // namespace ashlar::data
