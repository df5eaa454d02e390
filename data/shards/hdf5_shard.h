#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/shards/manifest.h"

namespace ashlar::data {

/// Writes one shard, an HDF5 file with the identity of the shard and two datasets. `tokens` contains the ids as uint16
/// or uint32, in chunks of kChunkTokens. `documents` contains the starts of documents as uint64, relative to the first
/// token of the shard. Each chunk has a Fletcher32 checksum. The file uses H5F_LIBVER_LATEST, whose metadata has
/// checksums. It has no time stamps, so that equal content gives equal bytes. The file becomes durable only in
/// io::publish_partial.
class ShardWriter {
 public:
  struct Args {
    std::string path;
    Part part = Part::kTrain;
    int64_t index = 0;        ///< index of the shard in its part
    int64_t first_chunk = 0;  ///< index of the first chunk of the shard, counted in the part
    int64_t tokens = 0;
    bool wide = false;
  };
  explicit ShardWriter(const Args& args);
  ~ShardWriter();  ///< after a failed write, leaves the HDF5 file open; the file remains on disk
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  void append(std::span<const int32_t> tokens);
  void add_document(int64_t start);  ///< called with ascending starts
  int64_t tokens_written() const;
  int64_t documents_written() const;
  void finish();                 ///< called after all tokens: writes the rest and closes the file
  const Digest& digest() const;  ///< digest of the tokens; valid after finish()

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads one shard by whole chunks. Throws damaged-data errors that name the file, and for a damaged chunk also the
/// HDF5 dataset and the chunk.
class ShardReader {
 public:
  struct Args {
    std::string path;
    const Manifest& manifest;
    Part part;
    int64_t index;
  };
  /// Opens the file and compares it with its entry in the manifest: first the identity (part, index and token digest;
  /// not in the old format), then size, shape and type.
  explicit ShardReader(const Args& args);
  /// True if the file matches its entry in the manifest. Reads only headers and attributes. False for a file that is
  /// not a shard.
  static bool accepts(const Args& args);
  ~ShardReader();
  ShardReader(const ShardReader&) = delete;
  ShardReader& operator=(const ShardReader&) = delete;

  int64_t num_token_chunks() const;
  /// Reads the tokens of one chunk into `out`, as the bytes of uint16 or uint32 ids.
  void read_tokens(int64_t chunk, std::vector<uint8_t>& out) const;
  int64_t num_document_chunks() const;
  /// Reads one chunk of the starts of documents into `out`.
  void read_documents(int64_t chunk, std::vector<int64_t>& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ashlar::data
