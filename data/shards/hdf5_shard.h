#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/shards/manifest.h"

namespace ashlar::data {

/// Writes one shard: `tokens` [n] uint16 or uint32, chunks of kChunkTokens, Fletcher32; `documents` [d] uint64, where
/// documents begin, counted from the shard's first token, Fletcher32; and its identity. In H5F_LIBVER_LATEST, whose
/// metadata is under checksums; without time stamps, so equal content gives equal bytes. The file is not durable before
/// publish_file.
class ShardWriter {
 public:
  struct Args {
    std::string path;
    Part part = Part::kTrain;
    int64_t index = 0;        ///< of the shard in its part
    int64_t first_chunk = 0;  ///< number in the part of its first chunk
    int64_t tokens = 0;
    bool wide = false;
  };
  explicit ShardWriter(const Args& args);
  ~ShardWriter();  ///< abandons what was not finished; the file stays
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  void append(std::span<const int32_t> tokens);
  void add_document(int64_t start);  ///< ascending
  int64_t tokens_written() const;
  int64_t documents_written() const;
  void finish();                 ///< all tokens are there; writes the rest and closes
  const Digest& digest() const;  ///< of the tokens, once finished

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads one shard by whole chunks. Throws damaged-data errors that name file, dataset and chunk.
class ShardReader {
 public:
  struct Args {
    std::string path;
    const Manifest& manifest;
    Part part;
    int64_t index;
  };
  /// Compares the file with its entry in the manifest: what it says it is (part, index, token digest; the old form says
  /// nothing), then size, shape and type.
  explicit ShardReader(const Args& args);
  /// Whether all of that agrees. Looks at headers and attributes, whatever the size; false for what is no such file.
  static bool accepts(const Args& args);
  ~ShardReader();
  ShardReader(const ShardReader&) = delete;
  ShardReader& operator=(const ShardReader&) = delete;

  int64_t num_token_chunks() const;
  /// The tokens of one chunk, in the shard's type, as bytes; `out` is replaced.
  void read_tokens(int64_t chunk, std::vector<uint8_t>& out) const;
  int64_t num_document_chunks() const;
  /// Starts of documents, one chunk's worth; `out` is replaced.
  void read_documents(int64_t chunk, std::vector<int64_t>& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ashlar::data
