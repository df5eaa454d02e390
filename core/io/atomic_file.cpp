#include "core/io/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "core/base/error.h"
#include "core/io/direct_file.h"
#include "core/io/posix_file.h"

namespace ashlar::io {

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), partial_path_(partial_path(path_)) {
  // O_NONBLOCK: something else of that name, a pipe, must not make the open wait.
  fd_ = ::open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd_ < 0) throw system_error("file", "create", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(partial_path_.c_str());
}

void AtomicFile::reserve(int64_t total_bytes) {
  if (total_bytes <= 0) return;
  if (::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, total_bytes) == 0) return;
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
    throw system_error("file", "reserve space for", path_, errno);
}

void AtomicFile::bypass_cache() {
  ASHLAR_CHECK(bytes_written_ == 0, path_.string(), " has been written to");
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
    // Give the space back at once: the caller may want to write a smaller file or a log line about this.
    ::close(std::exchange(fd_, -1));
    ::unlink(partial_path_.c_str());
    throw;
  }
  bytes_written_ += static_cast<int64_t>(bytes.size());
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  ASHLAR_CHECK(fd_ >= 0, "commit twice or after a failed write of ", path_.string());
  if (direct_) direct_->finish();
  if (::fsync(fd_) != 0) throw system_error("file", "sync", path_, errno);
  // Delayed allocation on network file systems reports a full disk only here.
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
  return partial += ".partial";
}

void publish_partial(const std::filesystem::path& path) {
  const std::filesystem::path partial = partial_path(path);
  sync_file(partial);
  if (std::rename(partial.c_str(), path.c_str()) != 0) throw system_error("file", "finish", path, errno);
  sync_directory(path.parent_path());
}

}  // namespace ashlar::io
