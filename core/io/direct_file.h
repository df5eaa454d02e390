#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "core/io/checksum.h"

namespace ashlar::io {

/// Of memory, offset and size of a transfer past the page cache: enough for every disk in use.
constexpr size_t kDirectAlignment = 4096;

struct FreeDirectMemory {
  void operator()(std::byte* bytes) const;
};
using DirectMemory = std::unique_ptr<std::byte[], FreeDirectMemory>;

/// Memory for such transfers, not touched yet, in huge pages where there are some: a disk transfer pins page by page,
/// which is most of its work. Throws std::bad_alloc.
DirectMemory allocate_direct_memory(size_t bytes);

/// Writes a stream to an open file past the page cache: large files that nobody reads soon then cost no second copy, do
/// not push out the pages of others, and do not pile up until one sync that everybody waits for. A file system that
/// cannot do that is written the ordinary way. Megabytes whose place in memory and in the file are the same modulo 4096
/// are written from where they are, other bytes from a buffer. The descriptor belongs to the caller, positioned at the
/// start.
class DirectWriter {
 public:
  DirectWriter(int fd, std::filesystem::path path);
  void write(std::span<const std::byte> bytes);  ///< throws system_error
  void finish();                                 ///< the rest; the caller syncs

 private:
  /// How much of `bytes` can be written now without copying it.
  size_t writable_as_it_is(std::span<const std::byte> bytes) const;
  void flush();
  void write_blocks(std::span<const std::byte> left);  ///< from the file's position on, which is aligned

  int fd_;
  std::filesystem::path path_;
  DirectMemory buffer_;
  size_t filled_ = 0;
  bool direct_;
};

/// Reads a file from its disk, not from the page cache where that can be told, and compares every byte with its
/// checksums. Errors as CheckedFile. Returns early when `cancelled` says so.
void verify_on_disk(const std::filesystem::path& path, const ChunkChecksums& expected,
                    const std::function<bool()>& cancelled = {});

}  // namespace ashlar::io
