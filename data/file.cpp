#include "data/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "core/base/error.h"

namespace ashlar::data {
namespace {

/// Disk full and its kin are resources; a bad path or a missing right is something the user mends.
Error file_error(int error, std::string_view what, const std::string& path) {
  const bool resource = error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO || error == ENOMEM ||
                        error == EMFILE || error == ENFILE;
  return Error(resource ? ExitCode::kResource : ExitCode::kInput, "data",
               str_cat("cannot ", what, " ", path, ": ", errno_text(error)));
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, std::string_view what) : fd_(::open(path.c_str(), flags, 0666)) {
    if (fd_ < 0) throw file_error(errno, what, path);
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw file_error(errno, "write", path);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  if (::fsync(fd) != 0) throw file_error(errno, "write", path);
}

}  // namespace

std::string errno_text(int error) { return std::system_category().message(error); }

InputFile::InputFile(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) throw file_error(errno, "open", path);
}

InputFile::~InputFile() { ::close(fd_); }

int64_t InputFile::size() const {
  struct stat st;
  if (::fstat(fd_, &st) != 0) throw file_error(errno, "read", path_);
  return st.st_size;
}

void InputFile::read_at(int64_t offset, int64_t n, std::string& out) const {
  out.resize(static_cast<size_t>(n));
  size_t got = 0;
  while (got < out.size()) {
    const ssize_t k = ::pread(fd_, out.data() + got, out.size() - got, offset + static_cast<int64_t>(got));
    if (k < 0 && errno == EINTR) continue;
    if (k < 0) throw file_error(errno, "read", path_);
    if (k == 0) break;
    got += static_cast<size_t>(k);
  }
  out.resize(got);
}

void sync_path(const std::string& path) {
  const Descriptor fd(path, O_RDONLY | O_CLOEXEC, "open");
  if (::fsync(fd.get()) != 0) throw file_error(errno, "write", path);
}

void publish_file(const std::string& from, const std::string& to) {
  sync_path(from);
  if (std::rename(from.c_str(), to.c_str()) != 0) throw file_error(errno, "rename to", to);
  const std::string parent = std::filesystem::path(to).parent_path().string();
  sync_path(parent.empty() ? "." : parent);
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".tmp";
  {
    const Descriptor fd(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, "create");
    write_all(fd.get(), bytes, temporary);
  }
  publish_file(temporary, path);
}

void append_durably(const std::string& path, std::string_view bytes) {
  const Descriptor fd(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, "open");
  write_all(fd.get(), bytes, path);
}

}  // namespace ashlar::data
