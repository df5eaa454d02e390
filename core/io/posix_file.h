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

/// The error for a failed system call: `[where] cannot ACTION 'PATH': TEXT (errno N)` and what to do about it.
/// Exhaustion (no space, quota, file size limit, open files, memory, device) is a resource error, exit code 6;
/// anything the user can name differently or permit (missing, not permitted, a directory) is an input error, exit
/// code 2.
Error system_error(std::string_view where, std::string_view action, const std::filesystem::path& path,
                   int error_number);

/// Writes all bytes to an open descriptor, continuing after partial writes and signals. Throws system_error; `path`
/// only names the file in it.
void write_fully(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

/// Adds text to the end of a file, made when it is missing, and syncs it: what this has returned from survives a power
/// cut. A kill or a full disk in between leaves any part of the text.
void append_durably(const std::filesystem::path& path, std::string_view text);

/// Makes a directory and its parents; an existing directory is fine. Throws system_error naming it.
void create_directories(const std::filesystem::path& path);

/// Makes the bytes of a file durable that something else wrote and closed.
void sync_file(const std::filesystem::path& path);

/// Makes the entries of a directory durable: a rename or a new file in it survives a power cut.
void sync_directory(const std::filesystem::path& path);

/// Which file a path names, how long it is and when it was last written, as the server of its file system has it at
/// this moment. Two equal stamps: nothing has been written in between.
struct FileStamp {
  uint64_t inode = 0, bytes = 0;
  int64_t sec = 0;
  uint32_t nsec = 0;
  bool operator==(const FileStamp&) const = default;
};
/// Nothing where there is no such file, or it cannot be asked. Opens no file.
std::optional<FileStamp> file_stamp(const std::filesystem::path& path);

/// Before a library opens `path`, which would wait for the other end of a pipe: input error of `where` when there is
/// something else than a regular file or a directory. What is not there is the library's to report.
void require_regular_file(const std::filesystem::path& path, std::string_view where);

/// A regular file open for positioned reads. Holds a descriptor, never maps the file, so a file that shrinks under the
/// reader is an error with a name and not a signal. Reads from several threads at once are allowed.
class InputFile {
 public:
  /// Throws an input error when the file is missing, unreadable or not a regular file.
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }  ///< when it was opened

  /// Fills `out` from `offset`. Throws a damaged error naming file and byte range when the file ends before that.
  void read_at(int64_t offset, std::span<std::byte> out) const;

  /// Fills `out` from `offset` and returns how many bytes there were: fewer than asked only where the file ends now.
  int64_t read_at_most(int64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  int64_t size_bytes_ = 0;
};

/// For read_text_file of a file that has no size of its own to be suspicious of.
inline constexpr int64_t kAnySize = std::numeric_limits<int64_t>::max();

/// A whole small file as text. Throws an input error when it is longer than `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, int64_t max_bytes = int64_t{64} << 20);

}  // namespace ashlar::io
