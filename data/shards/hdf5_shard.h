#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/shards/manifest.h"

namespace ashlar::data {

/// Writes one shard: `tokens` [n] uint16 or uint32, chunks of kChunkTokens, Fletcher32; `documents` [d] uint64, starts
/// of documents relative to the shard's first token, Fletcher32; and its identity. Uses H5F_LIBVER_LATEST, whose
/// metadata has checksums, without time stamps, so equal content gives equal bytes. The file is not durable before
/// publish_file.
class ShardWriter {
 public:
  struct Args {
    std::string path;
    Part part = Part::kTrain;
    int64_t index = 0;        ///< index of the shard in its part
    int64_t first_chunk = 0;  ///< number of its first chunk in the part
    int64_t tokens = 0;
    bool wide = false;
  };
  explicit ShardWriter(const Args& args);
  ~ShardWriter();  ///< abandons an unfinished shard; the file remains
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  void append(std::span<const int32_t> tokens);
  void add_document(int64_t start);  ///< ascending
  int64_t tokens_written() const;
  int64_t documents_written() const;
  void finish();                 ///< after all tokens: writes the rest and closes
  const Digest& digest() const;  ///< digest of the tokens, once finished

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
  /// Compares the file with its entry in the manifest: identity (part, index, token digest; absent in the old format),
  /// then size, shape and type.
  explicit ShardReader(const Args& args);
  /// True if the file matches its entry in the manifest. Reads only headers and attributes. False for a file that is
  /// not a shard.
  static bool accepts(const Args& args);
  ~ShardReader();
  ShardReader(const ShardReader&) = delete;
  ShardReader& operator=(const ShardReader&) = delete;

  int64_t num_token_chunks() const;
  /// Reads the tokens of one chunk into `out`, as bytes in the type of the shard.
  void read_tokens(int64_t chunk, std::vector<uint8_t>& out) const;
  int64_t num_document_chunks() const;
  /// Reads one chunk of the starts of documents into `out`.
  void read_documents(int64_t chunk, std::vector<int64_t>& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ashlar::data
