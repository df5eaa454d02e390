#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/printable.h"

namespace ashlar::io {

/// An open file descriptor, which the destructor closes; a negative number stands for none.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Returns the error of a failed system call: `[where] cannot ACTION 'PATH': TEXT (errno N)`, followed by advice for
/// common errors. It is a resource error (exit code 6) if a resource is exhausted (space, quota, file size limit, open
/// files, memory) or the device fails. Otherwise it is an input error (exit code 2), e.g. for a missing file, no
/// permission, or a directory in place of a file.
Error system_error(std::string_view where, std::string_view action, const std::filesystem::path& path,
                   int error_number);

/// Writes all bytes to an open descriptor, continuing after partial writes and signals. Throws a system_error that
/// names `path`.
void write_fully(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

/// Appends text to a file, created if missing, and syncs it: after return the text survives a power failure. A kill or
/// a full disk during the call may leave any part of the text.
void append_durably(const std::filesystem::path& path, std::string_view text);

/// Creates a directory and its parents; an existing directory is no error. Throws a system_error that names the
/// directory.
void create_directories(const std::filesystem::path& path);

/// Makes a file durable that other code has written and closed.
void sync_file(const std::filesystem::path& path);

/// Makes the entries of a directory durable, so that a rename or a new file in it survives a power failure.
void sync_directory(const std::filesystem::path& path);

/// Inode, size and modification time of a file; on a network file system, as its server currently knows them. A file
/// whose stamp has not changed is taken as unchanged.
struct FileStamp {
  uint64_t inode = 0, bytes = 0;
  int64_t sec = 0;
  uint32_t nsec = 0;
  bool operator==(const FileStamp&) const = default;
};
/// Returns the stamp of a file, or nullopt if there is no such file or statx fails. Does not open the file.
std::optional<FileStamp> file_stamp(const std::filesystem::path& path);

/// Throws an input error with the prefix `where` if `path` exists but is neither a regular file nor a directory. Call
/// it before a library opens `path`, since opening a pipe could block. A missing file is not an error here; the library
/// reports it.
void require_regular_file(const std::filesystem::path& path, std::string_view where);

/// A regular file that is open for reads at given offsets. The file is never mapped to memory, so that a file that
/// shrinks gives an error with its name instead of a SIGBUS. Thread-safe.
class InputFile {
 public:
  /// Opens the file. Throws an input error if it is missing, unreadable or not a regular file.
  explicit InputFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }  ///< size of the file when it was opened

  /// Fills `out` with the bytes from `offset` on. If the file is too short, throws a damaged-data error that names the
  /// file and the byte range.
  void read_at(int64_t offset, std::span<std::byte> out) const;

  /// Fills `out` with the bytes from `offset` on and returns their number, which is less than out.size() only if the
  /// file ends.
  int64_t read_at_most(int64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  Descriptor file_;
  int64_t size_bytes_ = 0;
};

/// Value of `max_bytes` for which read_text_file accepts a file of any size.
inline constexpr int64_t kAnySize = std::numeric_limits<int64_t>::max();

/// Returns the text of a small file. Throws an input error if the file is longer than `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, int64_t max_bytes = int64_t{64} << 20);

/// Returns the text of a file, e.g. in /proc; an empty text if the file cannot be read.
std::string text_if_readable(const std::filesystem::path& path);

}  // namespace ashlar::io
