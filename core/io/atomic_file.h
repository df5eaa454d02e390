#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace ashlar::io {

class DirectWriter;

/// A file that has its final name only when it is complete. Bytes go to an unnamed file in the same directory, which
/// the system removes if the process ends in any way. commit() syncs it, names it `PATH.partial`, renames it and syncs
/// the directory. If the file system does not support unnamed files, it is `PATH.partial` from the start, which a
/// killed process leaves behind. Without commit the destructor removes it, and an existing file under the final name is
/// kept. An old `PATH.partial` is removed at once, to free its space. One writer per name at a time. Errors: exhaustion
/// (disk, quota, size limit) exit code 6, unwritable or missing directory exit code 2; both name path and errno.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Reserves the space on the file system, so that a full disk fails before hours of writing. Reserves nothing if that
  /// much is not free; commit releases the unused part. The file's size is what is written; no effect on file systems
  /// without reservation.
  void reserve(int64_t total_bytes);
  /// Bypasses the page cache from the first byte on (see DirectWriter): for large files.
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
  bool named_ = false;  // partial_path_ exists
  int fd_ = -1;
  std::unique_ptr<DirectWriter> direct_;
  int64_t bytes_written_ = 0;
  int64_t reserved_bytes_ = 0;
};

/// Writes a small file in one call.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// `PATH.partial`: the name of an incomplete file.
std::filesystem::path partial_path(const std::filesystem::path& path);
/// PATH for `PATH.partial`; any other path unchanged.
std::filesystem::path without_partial(const std::filesystem::path& path);

/// The equivalent of commit() for a file that a library wrote to partial_path(path) and closed: syncs it, renames it
/// and syncs the directory. The partial file is kept on failure. Errors as above.
void publish_partial(const std::filesystem::path& path);

}  // namespace ashlar::io
