#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace ashlar::io {

class DirectWriter;

/// Writes a file that gets its final name PATH only when it is complete. Bytes go to an unnamed file in the same
/// directory; the system removes this file if the process ends. commit() syncs the file, names it `PATH.partial`,
/// renames it to PATH and syncs the directory. On a file system without unnamed files, the file is `PATH.partial` from
/// the start, and a killed process leaves it behind. If commit() is not called, the destructor removes the unfinished
/// file, and an existing file PATH stays unchanged. The constructor removes an old `PATH.partial`, to free its space.
/// There may be only one writer per PATH at a time. Errors name path and errno: an exhausted resource (disk, quota,
/// size limit) has exit code 6, an unwritable or missing directory has exit code 2.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Reserves disk space, so that a full disk is an error before hours of writing. If less than `total_bytes` is free,
  /// reserves nothing and throws. commit() releases reserved space that was not written. The size of the file does not
  /// change. Has no effect on file systems without reservation.
  void reserve(int64_t total_bytes);
  /// Makes all writes bypass the page cache (see DirectWriter), for large files. Must be called before the first write.
  void bypass_cache();
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  const std::filesystem::path& path() const { return path_; }

  /// Makes the file durable under its final name. Must be called once, after all writes.
  void commit();

 private:
  void abandon();

  std::filesystem::path path_;
  std::filesystem::path partial_path_;
  bool named_ = false;  // true if the file has the name partial_path_
  int fd_ = -1;
  std::unique_ptr<DirectWriter> direct_;
  int64_t bytes_written_ = 0;
  int64_t reserved_bytes_ = 0;
};

/// Writes a small file in one call.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// Returns `PATH.partial`, the name of an incomplete file PATH.
std::filesystem::path partial_path(const std::filesystem::path& path);
/// Returns PATH for `PATH.partial`, and any other path unchanged.
std::filesystem::path without_partial(const std::filesystem::path& path);

/// Does what commit() does, for a file that a library wrote to partial_path(path) and closed: syncs it, renames it to
/// `path` and syncs the directory. On failure, the partial file is kept. Throws the errors of AtomicFile.
void publish_partial(const std::filesystem::path& path);

}  // namespace ashlar::io
