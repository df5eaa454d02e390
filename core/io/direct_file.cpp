#include "core/io/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "core/base/error.h"
#include "core/io/posix_file.h"

namespace ashlar::io {
namespace {

constexpr size_t kAlignment = 4096;  // of memory, offset and size: enough for every disk in use
constexpr size_t kBufferBytes = size_t{4} << 20;

std::byte* aligned_buffer(size_t bytes) {
  void* memory = std::aligned_alloc(kAlignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

bool set_direct(int fd, bool direct) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

}  // namespace

void DirectWriter::Free::operator()(std::byte* bytes) const { std::free(bytes); }

DirectWriter::DirectWriter(int fd, std::filesystem::path path)
    : fd_(fd), path_(std::move(path)), buffer_(aligned_buffer(kBufferBytes)), direct_(set_direct(fd, true)) {}

void DirectWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), kBufferBytes - filled_);
    std::memcpy(buffer_.get() + filled_, bytes.data(), count);
    filled_ += count;
    bytes = bytes.subspan(count);
    if (filled_ == kBufferBytes) flush();
  }
}

void DirectWriter::flush() {
  std::span<const std::byte> left(buffer_.get(), filled_);
  filled_ = 0;
  while (direct_ && !left.empty()) {
    const ssize_t written = ::write(fd_, left.data(), left.size());
    if (written > 0) left = left.subspan(static_cast<size_t>(written));
    if (written >= 0 || errno == EINTR) continue;
    // Not aligned as this file system wants it, or no longer so after a part was written. Other errors come again.
    direct_ = !set_direct(fd_, false);
    if (direct_) throw system_error("file", "write", path_, errno);
  }
  write_fully(fd_, left, path_);
}

void DirectWriter::finish() {
  if (direct_) direct_ = !set_direct(fd_, false);  // the end of a file is not a whole number of blocks
  if (filled_ > 0) flush();
  // What went through the cache is clean after the caller's sync; nothing needs it there.
  static_cast<void>(::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED));
}

void verify_on_disk(const std::filesystem::path& path, const ChunkChecksums& expected,
                    const std::function<bool()>& cancelled) {
  const CheckedFile checked(path, expected);  // its size, and the right errors
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  struct Closer {
    int fd;
    ~Closer() {
      if (fd >= 0) ::close(fd);
    }
  } const closer{fd};
  const bool aligned = expected.chunk_bytes % static_cast<int64_t>(kAlignment) == 0;
  const auto chunk_bytes = static_cast<size_t>(expected.chunk_bytes);
  std::unique_ptr<std::byte, decltype(&std::free)> buffer(fd >= 0 && aligned ? aligned_buffer(chunk_bytes) : nullptr,
                                                          &std::free);
  for (int64_t chunk = 0; chunk < checked.num_chunks(); ++chunk) {
    if (cancelled && cancelled()) return;
    const int64_t begin = chunk * expected.chunk_bytes;
    const auto size = static_cast<size_t>(std::min(expected.chunk_bytes, expected.total_bytes - begin));
    const ssize_t got = buffer ? ::pread(fd, buffer.get(), chunk_bytes, begin) : -1;
    if (got >= static_cast<ssize_t>(size)) {
      checked.check_chunk(chunk, std::span(buffer.get(), size));
    } else {
      checked.verify(chunk, chunk + 1);  // the ordinary way where the other does not work
    }
  }
}

}  // namespace ashlar::io
