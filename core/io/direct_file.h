#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "core/io/checksum.h"

namespace ashlar::io {

/// Alignment, in bytes, of memory address, file offset and size for direct I/O. It is sufficient for all common disks.
constexpr size_t kDirectAlignment = 4096;

struct FreeDirectMemory {
  void operator()(std::byte* bytes) const;
};
using DirectMemory = std::unique_ptr<std::byte[], FreeDirectMemory>;

/// Allocates memory for direct I/O, without touching its pages yet. Uses huge pages if available, since otherwise most
/// of the time of a disk transfer is spent on pinning pages. Throws std::bad_alloc.
DirectMemory allocate_direct_memory(size_t bytes);

/// Writes a stream of bytes to an open file with direct I/O, for large files that are not read soon. Direct I/O avoids
/// the copy to the page cache, does not evict other pages from the cache, and leaves no dirty pages that one long sync
/// at the end must write. On file systems without direct I/O, writes go through the page cache. Pieces of at least 1
/// MiB whose memory address and file offset are equal modulo 4096 are written directly, all other bytes through a
/// buffer. The caller owns the descriptor, whose file offset must be 0.
class DirectWriter {
 public:
  DirectWriter(int fd, std::filesystem::path path);
  void write(std::span<const std::byte> bytes);  ///< appends the bytes; throws system_error
  void finish();                                 ///< writes the rest of the buffer; the caller must sync the file

 private:
  /// Returns how many bytes at the start of `bytes` can be written now without a copy.
  size_t writable_as_it_is(std::span<const std::byte> bytes) const;
  void flush();
  void write_blocks(std::span<const std::byte> left);  ///< writes `left` at the current, aligned file offset

  int fd_;
  std::filesystem::path path_;
  DirectMemory buffer_;
  size_t filled_ = 0;
  bool direct_;
};

/// Reads a file from its disk, bypassing the page cache if possible, and compares every byte with its checksums. Throws
/// the errors of CheckedFile. Returns early if `cancelled` returns true.
void verify_on_disk(const std::filesystem::path& path, const ChunkChecksums& expected,
                    const std::function<bool()>& cancelled = {});

}  // namespace ashlar::io
