#include "core/io/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "core/io/lfs_pointer.h"

namespace ashlar::io {
namespace {

bool is_exhaustion(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EIO:
    case ENOMEM:
    case EMFILE:
    case ENFILE: return true;
    default: return false;
  }
}

std::string_view remedy(int error_number) {
  switch (error_number) {
    case ENOSPC: return "; free space on that file system or choose another path";
    case EDQUOT: return "; free space within the quota or choose another path";
    case EFBIG: return "; raise the file size limit (ulimit -f) or choose another file system";
    case EIO: return "; the storage device reports a failure: check it or choose another path";
    case EMFILE:
    case ENFILE: return "; raise the limit on open files (ulimit -n)";
    case ENOENT: return "; check the path";
    case EACCES:
    case EPERM:
    case EROFS: return "; choose a path for which this user has permission";
    case ENOTDIR:
    case EISDIR: return "; check the path: a directory is in place of a file, or a file in place of a directory";
    default: return "";
  }
}

/// Opens a file. Throws a system_error with this action if that fails.
Descriptor opened(const std::filesystem::path& path, int flags, std::string_view action) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (file.get() < 0) throw system_error("file", action, path, errno);
  return file;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Error system_error(std::string_view where, std::string_view action, const std::filesystem::path& path,
                   int error_number) {
  const std::string text =
      str_cat("cannot ", action, " ", printable(path.string()), ": ", std::generic_category().message(error_number),
              " (errno ", error_number, ")", remedy(error_number));
  return Error(is_exhaustion(error_number) ? ExitCode::kResource : ExitCode::kInput, where, text);
}

void write_fully(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw system_error("file", "write", path, errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void append_durably(const std::filesystem::path& path, std::string_view text) {
  const Descriptor file = opened(path, O_WRONLY | O_CREAT | O_APPEND, "open");
  write_fully(file.get(), std::as_bytes(std::span(text)), path);
  if (::fsync(file.get()) != 0) throw system_error("file", "sync", path, errno);
}

void create_directories(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw system_error("file", "create directory", path, error.value());
  // std::filesystem::create_directories reports success if a file with that name exists.
  if (!std::filesystem::is_directory(path, error)) throw system_error("file", "create directory", path, ENOTDIR);
}

void sync_file(const std::filesystem::path& path) {
  const Descriptor file = opened(path, O_RDONLY, "open");
  if (::fsync(file.get()) != 0) throw system_error("file", "sync", path, errno);
}

void sync_directory(const std::filesystem::path& path) {
  const std::filesystem::path name = path.empty() ? std::filesystem::path(".") : path;
  const Descriptor directory = opened(name, O_RDONLY | O_DIRECTORY, "open directory");
  // Some network file systems cannot sync a directory and return EINVAL; their renames are already durable.
  if (::fsync(directory.get()) != 0 && errno != EINVAL) throw system_error("file", "sync directory", name, errno);
}

std::optional<FileStamp> file_stamp(const std::filesystem::path& path) {
  struct statx info {};
  if (statx(AT_FDCWD, path.c_str(), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &info) != 0) return std::nullopt;
  return FileStamp{info.stx_ino, info.stx_size, info.stx_mtime.tv_sec, info.stx_mtime.tv_nsec};
}

void require_regular_file(const std::filesystem::path& path, std::string_view where) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return;
  const char* what = S_ISFIFO(info.st_mode) ? "a pipe" : S_ISSOCK(info.st_mode) ? "a socket" : "a device";
  throw input_error(where, path.string(), ": expected a regular file, got ", what,
                    "; write its content to a file and give that file");
}

// With O_NONBLOCK, opening a pipe does not wait for a writer. Regular files ignore the flag.
InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), file_(opened(path_, O_RDONLY | O_NONBLOCK, "open")) {
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) throw system_error("file", "examine", path_, errno);
  if (!S_ISREG(info.st_mode)) {
    throw input_error("file", "expected a regular file, got ", printable(path_.string()),
                      ", which is a directory, pipe or device; check the path");
  }
  size_bytes_ = info.st_size;
}

int64_t InputFile::read_at_most(int64_t offset, std::span<std::byte> out) const {
  ASHLAR_CHECK(offset >= 0, "offset = ", offset);
  int64_t done = 0;
  while (!out.empty()) {
    const ssize_t got = ::pread(file_.get(), out.data(), out.size(), offset + done);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw system_error("file", "read", path_, errno);
    }
    if (got == 0) break;
    out = out.subspan(static_cast<size_t>(got));
    done += got;
  }
  return done;
}

void InputFile::read_at(int64_t offset, std::span<std::byte> out) const {
  const int64_t got = read_at_most(offset, out);
  const auto expected = static_cast<int64_t>(out.size());
  if (got == expected) return;
  throw damaged_error("file", printable(path_.string()), " is truncated: expected bytes ", offset, " to ",
                      offset + expected, ", reading stopped at byte ", offset + got, "; restore it from its source");
}

std::string read_text_file(const std::filesystem::path& path, int64_t max_bytes) {
  const InputFile file(path);
  if (file.size_bytes() > max_bytes) {
    throw input_error("file", "expected at most ", max_bytes, " bytes in ", printable(path.string()), ", got ",
                      file.size_bytes(), "; check the path");
  }
  std::string text(static_cast<size_t>(file.size_bytes()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  if (is_lfs_pointer(text)) throw lfs_pointer_error("file", path);
  return text;
}

std::string text_if_readable(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ashlar::io
