#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "core/io/posix_file.h"

namespace ashlar::io {

/// Number of bytes per checksum: small enough to locate an error, large enough for a short list (4 bytes per MiB of
/// data).
inline constexpr int64_t kChecksumChunkBytes = int64_t{1} << 20;

/// CRC-32 as in zlib, gzip and PNG (polynomial 0xEDB88320, reflected). `crc` is the checksum of the preceding bytes, or
/// 0 at the start of the data.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t crc = 0);
uint32_t crc32(std::string_view text, uint32_t crc = 0);

/// The checksums of a file: one CRC-32 for each chunk_bytes bytes from its start; the last chunk may be shorter.
struct ChunkChecksums {
  int64_t chunk_bytes = kChecksumChunkBytes;
  int64_t total_bytes = 0;
  std::vector<uint32_t> crcs;

  bool operator==(const ChunkChecksums&) const = default;
  /// True if the number of checksums fits total_bytes and chunk_bytes. Validates a list that was read from a manifest.
  bool is_consistent() const;
};

/// Computes the ChunkChecksums of a stream of bytes, which is given in pieces of any size.
class ChunkHasher {
 public:
  explicit ChunkHasher(int64_t chunk_bytes = kChecksumChunkBytes);
  void update(std::span<const std::byte> bytes);
  ChunkChecksums finish();  ///< closes the last chunk and returns all checksums; must be called once

 private:
  ChunkChecksums sums_;
  int64_t filled_bytes_ = 0;
  uint32_t crc_ = 0;
};

ChunkChecksums checksum_file(const std::filesystem::path& path, int64_t chunk_bytes = kChecksumChunkBytes);

/// Size and CRC-32 of a whole file.
struct FileSum {
  int64_t bytes = 0;
  uint32_t crc32 = 0;

  bool operator==(const FileSum&) const = default;
};
FileSum sum_file(const std::filesystem::path& path);

/// A file whose reads are all verified. Each chunk that a read touches is read completely and compared with its
/// checksum, so the first read of a damaged byte fails.
class CheckedFile {
 public:
  /// Throws a damaged-data error if the file size differs from expected.total_bytes. Reads no data yet.
  CheckedFile(std::filesystem::path path, ChunkChecksums expected);

  const std::filesystem::path& path() const { return file_.path(); }
  int64_t size_bytes() const { return file_.size_bytes(); }

  /// Fills `out` with the bytes from `offset` on. If a chunk is damaged, throws a damaged-data error that names the
  /// file, the chunk and the byte range.
  void read_at(int64_t offset, std::span<std::byte> out) const;

  /// Compares the bytes of a chunk, which the caller has read, with its checksum. Throws a damaged-data error if they
  /// differ.
  void check_chunk(int64_t chunk, std::span<const std::byte> bytes) const;
  int64_t num_chunks() const { return static_cast<int64_t>(expected_.crcs.size()); }
  /// Reads and compares the chunks [first, end). Throws a damaged-data error at the first damaged chunk.
  void verify(int64_t first, int64_t end) const;

 private:
  InputFile file_;
  ChunkChecksums expected_;
};

}  // namespace ashlar::io
