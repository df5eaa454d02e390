#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace ashlar::io {

class DirectWriter;

/// A file that appears under its final name whole or not at all: bytes go to a file without a name in the same
/// directory, which the system removes with the process, whatever ends it; commit() syncs it, names it `PATH.partial`,
/// renames it and syncs the directory. Where the file system has no files without a name it is `PATH.partial` from the
/// start, which a killed process leaves behind. Without commit the destructor removes it, and what stood under the
/// final name before stays. A `PATH.partial` of before is removed at once, with the space it has. One writer a name at
/// a time. Errors: exhaustion (disk, quota, size limit) exit code 6, unwritable or missing directory exit code 2; both
/// name path and errno.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Asks the file system for the space now, so that a full disk fails before hours of writing and not after. Takes
  /// nothing when that much is not free; what is not written is given back by commit. The size of the file is what is
  /// written; a file system that cannot reserve is left as it is.
  void reserve(int64_t total_bytes);
  /// From the first byte on, writes past the page cache (see DirectWriter): for large files.
  void bypass_cache();
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  const std::filesystem::path& path() const { return path_; }

  /// Makes the file durable under its final name. Call once, last.
  void commit();

 private:
  void abandon();

  std::filesystem::path path_;
  std::filesystem::path partial_path_;
  bool named_ = false;  // partial_path_ is there
  int fd_ = -1;
  std::unique_ptr<DirectWriter> direct_;
  int64_t bytes_written_ = 0;
  int64_t reserved_bytes_ = 0;
};

/// The whole of a small file in one call.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// `PATH.partial`: where a file is written until it is whole.
std::filesystem::path partial_path(const std::filesystem::path& path);
/// PATH of `PATH.partial`; any other path as it is.
std::filesystem::path without_partial(const std::filesystem::path& path);

/// What commit() does, for a file that a library wrote to partial_path(path) and closed: syncs it, renames it and syncs
/// the directory. The partial file stays when this fails. Errors as above.
void publish_partial(const std::filesystem::path& path);

}  // namespace ashlar::io
