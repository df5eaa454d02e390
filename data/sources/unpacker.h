#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/io/posix_file.h"

namespace ashlar::data {

/// Compression of a file.
enum class Packing : uint8_t { kNone, kGzip, kZstd };

/// Detected from the first bytes, not from the name. Four bytes are enough.
Packing packing_of(std::string_view head);

/// Reads the content of a compressed file, in order. All members of a gzip file and all frames of a zstd file form one
/// text, as with gzip -d and zstd -d. Zeros after the last gzip member are padding. Memory: a few hundred kilobytes,
/// and for zstd also the window of the file (up to 128 MB; a file with a larger window is refused).
/// Source: RFC 1952 (gzip), RFC 8878 (zstd).
class Unpacker {
 public:
  /// `shown` is the name in errors. Packing::kNone is a bug.
  Unpacker(const io::InputFile& file, Packing packing, std::string shown);
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  /// The next bytes; fewer than requested only at the end. A file that is truncated, broken or followed by other data
  /// is an input error that names the file and the place.
  size_t read(std::span<char> out);
  int64_t packed_bytes() const { return next_offset_; }  ///< compressed bytes consumed so far

 private:
  class Stream;
  class GzipStream;
  class ZstdStream;

  bool refill();  ///< more compressed bytes; false at the end of the file

  const io::InputFile& file_;
  std::string shown_;
  std::string packed_;       ///< compressed bytes read
  size_t used_ = 0;          ///< number of these consumed by the stream
  int64_t next_offset_ = 0;  ///< file offset of the next byte to read
  int64_t unpacked_ = 0;     ///< bytes returned
  std::unique_ptr<Stream> stream_;
};

}  // namespace ashlar::data
