#include "core/io/checksum.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/hex.h"

namespace ashlar::io {

bool ChunkChecksums::is_consistent() const {
  return chunk_bytes > 0 && total_bytes >= 0 &&
         static_cast<int64_t>(crcs.size()) == total_bytes / chunk_bytes + (total_bytes % chunk_bytes != 0 ? 1 : 0);
}

ChunkHasher::ChunkHasher(int64_t chunk_bytes) {
  ASHLAR_CHECK(chunk_bytes > 0, "chunk_bytes = ", chunk_bytes);
  sums_.chunk_bytes = chunk_bytes;
}

void ChunkHasher::update(std::span<const std::byte> bytes) {
  sums_.total_bytes += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const auto room = static_cast<size_t>(sums_.chunk_bytes - filled_bytes_);
    const auto part = bytes.first(std::min(room, bytes.size()));
    crc_ = crc32(part, crc_);
    filled_bytes_ += static_cast<int64_t>(part.size());
    bytes = bytes.subspan(part.size());
    if (filled_bytes_ == sums_.chunk_bytes) {
      sums_.crcs.push_back(crc_);
      crc_ = 0;
      filled_bytes_ = 0;
    }
  }
}

ChunkChecksums ChunkHasher::finish() {
  if (filled_bytes_ > 0) sums_.crcs.push_back(crc_);
  filled_bytes_ = 0;
  crc_ = 0;
  return std::move(sums_);
}

ChunkChecksums checksum_file(const std::filesystem::path& path, int64_t chunk_bytes) {
  const InputFile file(path);
  ChunkHasher hasher(chunk_bytes);
  std::vector<std::byte> buffer(static_cast<size_t>(kChecksumChunkBytes));
  for (int64_t offset = 0; offset < file.size_bytes();) {
    const auto count = std::min<int64_t>(kChecksumChunkBytes, file.size_bytes() - offset);
    const auto part = std::span(buffer).first(static_cast<size_t>(count));
    file.read_at(offset, part);
    hasher.update(part);
    offset += count;
  }
  return hasher.finish();
}

FileSum sum_file(const std::filesystem::path& path) {
  const ChunkChecksums whole = checksum_file(path, std::numeric_limits<int64_t>::max());
  return {.bytes = whole.total_bytes, .crc32 = whole.crcs.empty() ? 0 : whole.crcs[0]};
}

CheckedFile::CheckedFile(std::filesystem::path path, ChunkChecksums expected)
    : file_(std::move(path)), expected_(std::move(expected)) {
  if (!expected_.is_consistent()) {
    throw damaged_error("checksum", "expected one recorded checksum for each chunk of ", expected_.chunk_bytes,
                        " bytes of ", printable(file_.path().string()), ", got ", expected_.crcs.size(),
                        " checksums for ", expected_.total_bytes,
                        " bytes; the file that lists them is damaged: restore it from its source");
  }
  if (file_.size_bytes() != expected_.total_bytes) {
    throw damaged_error("checksum", printable(file_.path().string()), " is damaged: expected ", expected_.total_bytes,
                        " bytes, got ", file_.size_bytes(), "; restore it from its source");
  }
}

void CheckedFile::check_chunk(int64_t chunk, std::span<const std::byte> bytes) const {
  const uint32_t got = crc32(bytes);
  const uint32_t expected = expected_.crcs[static_cast<size_t>(chunk)];
  if (got == expected) return;
  const int64_t begin = chunk * expected_.chunk_bytes;
  throw damaged_error("checksum", printable(file_.path().string()), " is damaged in chunk ", chunk, ", bytes ", begin,
                      " to ", begin + static_cast<int64_t>(bytes.size()), ": expected CRC-32 ", hex32(expected),
                      ", got ", hex32(got), "; restore it from its source");
}

void CheckedFile::read_at(int64_t offset, std::span<std::byte> out) const {
  const auto size = static_cast<int64_t>(out.size());
  ASHLAR_CHECK(offset >= 0 && offset <= size_bytes() && size <= size_bytes() - offset, "read of ", size, " bytes at ",
               offset, " of ", path().string(), ", which has ", size_bytes());
  std::vector<std::byte> scratch;  // used only for chunks that the read covers in part
  for (int64_t position = offset; position < offset + size;) {
    const int64_t chunk = position / expected_.chunk_bytes;
    const int64_t begin = chunk * expected_.chunk_bytes;
    const int64_t end = std::min(begin + expected_.chunk_bytes, size_bytes());
    const int64_t stop = std::min(end, offset + size);
    const auto target = out.subspan(static_cast<size_t>(position - offset), static_cast<size_t>(stop - position));
    if (position == begin && stop == end) {
      file_.read_at(begin, target);
      check_chunk(chunk, target);
    } else {
      scratch.resize(static_cast<size_t>(end - begin));
      file_.read_at(begin, scratch);
      check_chunk(chunk, scratch);
      std::memcpy(target.data(), scratch.data() + (position - begin), target.size());
    }
    position = stop;
  }
}

void CheckedFile::verify(int64_t first, int64_t end) const {
  std::vector<std::byte> buffer;
  for (int64_t chunk = first; chunk < end; ++chunk) {
    const int64_t begin = chunk * expected_.chunk_bytes;
    buffer.resize(static_cast<size_t>(std::min(expected_.chunk_bytes, size_bytes() - begin)));
    read_at(begin, buffer);
  }
}

}  // namespace ashlar::io
