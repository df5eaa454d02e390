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

/// A dataset opened for reading. Opening reads only the manifest; shards are opened and compared with it when first
/// read. Every read is of whole chunks, each with its checksum: a damaged chunk, a truncated shard or a shard of
/// another dataset is a damaged-data error (exit code 3) that names file, dataset and chunk. Not thread-safe.
class TokenDataset {
 public:
  explicit TokenDataset(const std::string& directory);
  /// Opens a dataset with the bytes of its manifest.json, read by the caller.
  TokenDataset(const std::string& directory, const std::string& manifest_text);
  ~TokenDataset();
  TokenDataset(const TokenDataset&) = delete;
  TokenDataset& operator=(const TokenDataset&) = delete;

  const std::string& directory() const { return directory_; }
  const Manifest& manifest() const { return *manifest_; }
  Fingerprint fingerprint() const { return fingerprint_of(*manifest_); }
  /// Warnings for the user, one line each, e.g. that the dataset is in the old format.
  std::vector<std::string> warnings() const;
  /// Another reader of the same dataset, for another thread; shares the manifest.
  std::unique_ptr<TokenDataset> reopened() const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  int64_t tokens(Part part) const { return manifest_->part(part).tokens; }
  int64_t num_chunks(Part part) const { return (tokens(part) + kChunkTokens - 1) / kChunkTokens; }

  /// The tokens of chunk `chunk` of a part: kChunkTokens of them, fewer in the last. Ids at or above the vocabulary are
  /// damaged data. The span is valid until the next read of any kind.
  std::span<const int32_t> read_chunk(Part part, int64_t chunk);

  /// Copies tokens [first, first + out.size()) of a part; the last chunk is cached, so sequential reads cost one read
  /// per chunk.
  void read(Part part, int64_t first, std::span<int32_t> out);

  /// Number of shards of both parts, the train part first: indices of check_shard.
  int64_t num_shards() const;
  /// Opens one shard, compares it with the manifest without reading its chunks, and closes it. Damaged-data error when
  /// the shard is missing or truncated, or when the file is another shard.
  void check_shard(int64_t shard) const;

  /// Host memory held for reading, in bytes (scratch chunk, without open files).
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
  std::vector<int64_t> first_chunk_[2];  ///< first chunk of each shard, and one past the end
  std::vector<OpenShard> open_;          ///< most recently used last, few
  std::vector<uint8_t> raw_;
  std::vector<int32_t> chunk_tokens_;
  Part cached_part_ = Part::kTrain;
  int64_t cached_chunk_ = -1;
};

}  // namespace ashlar::data
