#include "core/io/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "core/io/posix_file.h"

namespace ashlar::io {
namespace {

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kWorthAWrite = size_t{1} << 20;  // smaller pieces go through the buffer

bool set_direct(int fd, bool direct) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

}  // namespace

void FreeDirectMemory::operator()(std::byte* bytes) const { std::free(bytes); }

DirectMemory allocate_direct_memory(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  DirectMemory memory(static_cast<std::byte*>(std::aligned_alloc(kHugePage, size)));
  if (!memory) throw std::bad_alloc();
  static_cast<void>(::madvise(memory.get(), size, MADV_HUGEPAGE));  // a failure is ignored: I/O is then only slower
  return memory;
}

DirectWriter::DirectWriter(int fd, std::filesystem::path path)
    : fd_(fd), path_(std::move(path)), buffer_(allocate_direct_memory(kBufferBytes)), direct_(set_direct(fd, true)) {}

void DirectWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (const size_t count = writable_as_it_is(bytes); count > 0) {
      flush();
      write_blocks(bytes.first(count));
      bytes = bytes.subspan(count);
      continue;
    }
    size_t count = std::min(bytes.size(), kBufferBytes - filled_);
    // If memory address and file offset become aligned at the same byte, copies only the bytes before it.
    const size_t gap =
        (kDirectAlignment - reinterpret_cast<uintptr_t>(bytes.data()) % kDirectAlignment) % kDirectAlignment;
    if (direct_ && gap < count && (filled_ + gap) % kDirectAlignment == 0 && bytes.size() - gap >= kWorthAWrite)
      count = gap;
    std::memcpy(buffer_.get() + filled_, bytes.data(), count);
    filled_ += count;
    bytes = bytes.subspan(count);
    if (filled_ == kBufferBytes) flush();
  }
}

size_t DirectWriter::writable_as_it_is(std::span<const std::byte> bytes) const {
  const bool aligned =
      filled_ % kDirectAlignment == 0 && reinterpret_cast<uintptr_t>(bytes.data()) % kDirectAlignment == 0;
  return direct_ && aligned && bytes.size() >= kWorthAWrite ? bytes.size() / kDirectAlignment * kDirectAlignment : 0;
}

void DirectWriter::flush() { write_blocks({buffer_.get(), std::exchange(filled_, 0)}); }

void DirectWriter::write_blocks(std::span<const std::byte> left) {
  while (direct_ && !left.empty()) {
    const ssize_t written = ::write(fd_, left.data(), left.size());
    if (written > 0) left = left.subspan(static_cast<size_t>(written));
    if (written >= 0 || errno == EINTR) continue;
    // The direct write failed, perhaps because this file system requires another alignment, e.g. after a partial write.
    // So turns direct I/O off and writes the rest through the page cache. If the error has another cause, this write
    // fails as well.
    direct_ = !set_direct(fd_, false);
    if (direct_) throw system_error("file", "write", path_, errno);
  }
  write_fully(fd_, left, path_);
}

void DirectWriter::finish() {
  if (direct_) direct_ = !set_direct(fd_, false);  // since the end of the file may be a partial block
  if (filled_ > 0) flush();
  // Data that was written through the page cache need not stay in the cache, since the file is not read soon.
  static_cast<void>(::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED));
}

void verify_on_disk(const std::filesystem::path& path, const ChunkChecksums& expected,
                    const std::function<bool()>& cancelled) {
  const CheckedFile checked(path, expected);  // checks the size of the file
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  const bool aligned = expected.chunk_bytes % static_cast<int64_t>(kDirectAlignment) == 0;
  const auto chunk_bytes = static_cast<size_t>(expected.chunk_bytes);
  const DirectMemory buffer = file.get() >= 0 && aligned ? allocate_direct_memory(chunk_bytes) : nullptr;
  for (int64_t chunk = 0; chunk < checked.num_chunks(); ++chunk) {
    if (cancelled && cancelled()) return;
    const int64_t begin = chunk * expected.chunk_bytes;
    const auto size = static_cast<size_t>(std::min(expected.chunk_bytes, expected.total_bytes - begin));
    const ssize_t got = buffer ? ::pread(file.get(), buffer.get(), chunk_bytes, begin) : -1;
    if (got >= static_cast<ssize_t>(size)) {
      checked.check_chunk(chunk, std::span(buffer.get(), size));
    } else {
      checked.verify(chunk, chunk + 1);  // reads through the page cache if direct I/O does not work
    }
  }
}

}  // namespace ashlar::io
