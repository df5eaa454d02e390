#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/printable.h"

namespace ashlar::io {

/// The error of a failed system call: `[where] cannot ACTION 'PATH': TEXT (errno N)` with advice. It is a resource
/// error (exit code 6) if something is exhausted: space, quota, file size limit, open files, memory, device. It is an
/// input error (exit code 2) if the user can correct it by another name or permissions: a missing file, no permission,
/// a directory.
Error system_error(std::string_view where, std::string_view action, const std::filesystem::path& path,
                   int error_number);

/// Writes all bytes to an open descriptor, continuing after partial writes and signals. Throws system_error with
/// `path`.
void write_fully(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

/// Appends text to a file, created if missing, and syncs it: after return the text survives a power failure. A kill or
/// a full disk during the call may leave any part of the text.
void append_durably(const std::filesystem::path& path, std::string_view text);

/// Makes a directory and its parents; an existing directory is fine. Throws system_error naming it.
void create_directories(const std::filesystem::path& path);

/// Makes a file durable that other code wrote and closed.
void sync_file(const std::filesystem::path& path);

/// Makes directory entries durable: a rename or a new file survives a power failure.
void sync_directory(const std::filesystem::path& path);

/// Identity, size and modification time of a file, as currently known to its file system's server. Equal stamps:
/// nothing was written in between.
struct FileStamp {
  uint64_t inode = 0, bytes = 0;
  int64_t sec = 0;
  uint32_t nsec = 0;
  bool operator==(const FileStamp&) const = default;
};
/// Nothing if there is no such file, or stat fails. Opens no file.
std::optional<FileStamp> file_stamp(const std::filesystem::path& path);

/// Call it before a library opens `path`, since opening a pipe could block. Input error of `where` if `path` is neither
/// a regular file nor a directory. A missing file is not an error here; the library reports it.
void require_regular_file(const std::filesystem::path& path, std::string_view where);

/// A regular file open for positioned reads. Holds a descriptor and never maps the file, so a file that shrinks is an
/// error with a name and not a signal. Thread-safe.
class InputFile {
 public:
  /// Throws an input error when the file is missing, unreadable or not a regular file.
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }  ///< size when opened

  /// Fills `out` from `offset`. Throws a damaged error naming file and byte range when the file ends before that.
  void read_at(int64_t offset, std::span<std::byte> out) const;

  /// Fills `out` from `offset` and returns the number of bytes: fewer than requested only at the current end of the
  /// file.
  int64_t read_at_most(int64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  int64_t size_bytes_ = 0;
};

/// The size limit to pass to read_text_file for a file of any size.
inline constexpr int64_t kAnySize = std::numeric_limits<int64_t>::max();

/// A whole small file as text. Throws an input error when it is longer than `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, int64_t max_bytes = int64_t{64} << 20);

/// A whole file as text, such as one of /proc; empty if it cannot be read.
std::string text_if_readable(const std::filesystem::path& path);

}  // namespace ashlar::io
