#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "core/io/checksum.h"

namespace ashlar::io {

/// Alignment of memory, offset and size for direct I/O. It is sufficient for all common disks.
constexpr size_t kDirectAlignment = 4096;

struct FreeDirectMemory {
  void operator()(std::byte* bytes) const;
};
using DirectMemory = std::unique_ptr<std::byte[], FreeDirectMemory>;

/// Returns memory for direct I/O that is not touched yet. It has huge pages if available, since pinning pages is most
/// of the work of a disk transfer. Throws std::bad_alloc.
DirectMemory allocate_direct_memory(size_t bytes);

/// Writes a stream to an open file with direct I/O, for large files that are not read soon. These are then not copied
/// twice, do not evict other pages, and do not accumulate until one long sync. Falls back to buffered writes on file
/// systems without support. Megabytes whose memory address and file offset are equal modulo 4096 are written directly,
/// other bytes through a buffer. The descriptor belongs to the caller and must be at offset 0.
class DirectWriter {
 public:
  DirectWriter(int fd, std::filesystem::path path);
  void write(std::span<const std::byte> bytes);  ///< throws system_error
  void finish();                                 ///< writes the rest; the caller syncs

 private:
  /// Returns how many of the `bytes` can be written now without a copy.
  size_t writable_as_it_is(std::span<const std::byte> bytes) const;
  void flush();
  void write_blocks(std::span<const std::byte> left);  ///< writes from the current file position, which is aligned

  int fd_;
  std::filesystem::path path_;
  DirectMemory buffer_;
  size_t filled_ = 0;
  bool direct_;
};

/// Reads a file from its disk, bypassing the page cache if possible, and compares every byte with its checksums. Errors
/// as CheckedFile. Returns early when `cancelled` returns true.
void verify_on_disk(const std::filesystem::path& path, const ChunkChecksums& expected,
                    const std::function<bool()>& cancelled = {});

}  // namespace ashlar::io
