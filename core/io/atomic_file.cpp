#include "core/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "core/base/error.h"
#include "core/io/direct_file.h"
#include "core/io/posix_file.h"

namespace ashlar::io {

namespace {

constexpr std::string_view kPartialSuffix = ".partial";

/// Opens an unnamed file in the directory. The system removes the file when the last process closes it. Returns -1 if
/// the file system does not support unnamed files.
int open_nameless(const std::filesystem::path& directory) {
  return ::open(directory.empty() ? "." : directory.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
}

int link_nameless(int fd, const std::filesystem::path& path) {
  const std::string link = str_cat("/proc/self/fd/", fd);
  if (::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0) return 0;
  if (errno != ENOENT) return -1;
  return ::linkat(fd, "", AT_FDCWD, path.c_str(), AT_EMPTY_PATH);  // works without /proc, but needs CAP_DAC_READ_SEARCH
}

/// Removes a leftover partial file (or symbolic link) before writing, to free its space. If something else, such as a
/// directory, has the name `partial`, keeps it and throws.
void remove_leftover(const std::filesystem::path& partial, const std::filesystem::path& path) {
  struct stat info {};
  if (::lstat(partial.c_str(), &info) != 0) return;
  if (S_ISDIR(info.st_mode)) throw system_error("file", "create the .partial file of", path, EISDIR);
  if (!S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode))
    throw system_error("file", "create the .partial file of", path, EEXIST);
  if (::unlink(partial.c_str()) != 0 && errno != ENOENT)
    throw system_error("file", "remove the old .partial file of", path, errno);
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), partial_path_(partial_path(path_)) {
  remove_leftover(partial_path_, path_);
  fd_ = open_nameless(path_.parent_path());
  named_ = fd_ < 0;
  if (named_) fd_ = ::open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) throw system_error("file", "create", path_, errno);
}

AtomicFile::~AtomicFile() { abandon(); }

void AtomicFile::abandon() {
  if (fd_ < 0) return;
  ::close(std::exchange(fd_, -1));
  if (named_) ::unlink(partial_path_.c_str());
}

void AtomicFile::reserve(int64_t total_bytes) {
  if (total_bytes <= 0) return;
  if (::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, 1) != 0 && errno == EOPNOTSUPP) return;
  // Checks the free space first, since an fallocate that fails takes all free space from other programs until it fails.
  struct statvfs disk {};
  if (::fstatvfs(fd_, &disk) == 0 && disk.f_blocks > 0) {
    const auto free_blocks = static_cast<int64_t>(::geteuid() == 0 ? disk.f_bfree : disk.f_bavail);
    if (total_bytes / static_cast<int64_t>(disk.f_frsize) > free_blocks)
      throw system_error("file", str_cat("reserve ", total_bytes, " bytes for"), path_, ENOSPC);
  }
  if (::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, total_bytes) == 0) {
    reserved_bytes_ = total_bytes;
    return;
  }
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
    throw system_error("file", str_cat("reserve ", total_bytes, " bytes for"), path_, errno);
}

void AtomicFile::bypass_cache() {
  ASHLAR_CHECK(bytes_written_ == 0, path_.string(), ": bypass_cache must be called before the first write");
  direct_ = std::make_unique<DirectWriter>(fd_, path_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  ASHLAR_CHECK(fd_ >= 0, "write after commit to ", path_.string());
  try {
    if (direct_) {
      direct_->write(bytes);
    } else {
      write_fully(fd_, bytes, path_);
    }
  } catch (const Error&) {
    // Removes the file to free its space at once, since the caller may want to write a smaller file or a log line.
    abandon();
    throw;
  }
  bytes_written_ += static_cast<int64_t>(bytes.size());
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  ASHLAR_CHECK(fd_ >= 0, "commit twice or after a failed write of ", path_.string());
  if (direct_) direct_->finish();
  // Truncates the file: without this, reserved space that was not written would stay allocated to it.
  if (reserved_bytes_ > bytes_written_ && ::ftruncate(fd_, bytes_written_) != 0)
    throw system_error("file", "finish", path_, errno);
  if (::fsync(fd_) != 0) throw system_error("file", "sync", path_, errno);
  if (!named_ && link_nameless(fd_, partial_path_) != 0) throw system_error("file", "create", path_, errno);
  named_ = true;
  // Network file systems with delayed allocation report a full disk only when the file is closed.
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0 || std::rename(partial_path_.c_str(), path_.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(partial_path_.c_str());
    throw system_error("file", "finish", path_, error_number);
  }
  sync_directory(path_.parent_path());
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::filesystem::path partial_path(const std::filesystem::path& path) {
  std::filesystem::path partial = path;
  return partial += kPartialSuffix;
}

std::filesystem::path without_partial(const std::filesystem::path& path) {
  const std::string& text = path.native();
  return text.ends_with(kPartialSuffix) ? text.substr(0, text.size() - kPartialSuffix.size()) : text;
}

void publish_partial(const std::filesystem::path& path) {
  const std::filesystem::path partial = partial_path(path);
  sync_file(partial);
  if (std::rename(partial.c_str(), path.c_str()) != 0) throw system_error("file", "finish", path, errno);
  sync_directory(path.parent_path());
}

}  // namespace ashlar::io
