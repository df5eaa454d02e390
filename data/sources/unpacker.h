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

/// Detects the compression from the first bytes of a file, not from its name. Four bytes are enough.
Packing packing_of(std::string_view head);

/// Reads the content of a compressed file, in order. All members of a gzip file, or all frames of a zstd file, form one
/// text, as with gzip -d and zstd -d. Zeros after the last gzip member are skipped as padding. The memory is a few
/// hundred kilobytes. For zstd it also includes the decompression window of the file (up to 128 MiB; a file with a
/// larger window is refused).
/// Source: RFC 1952 (gzip), RFC 8878 (zstd).
class Unpacker {
 public:
  /// `shown` is the file name in errors. `packing` must not be Packing::kNone.
  Unpacker(const io::InputFile& file, Packing packing, std::string shown);
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  /// Writes the next unpacked bytes to `out` and returns their number, which is less than requested only at the end.
  /// Throws an input error that names the file and the place if the file is truncated, is broken or is followed by
  /// other data.
  size_t read(std::span<char> out);
  int64_t packed_bytes() const { return next_offset_; }  ///< number of compressed bytes read so far

 private:
  class Stream;
  class GzipStream;
  class ZstdStream;

  bool refill();  ///< reads more compressed bytes; returns false at the end of the file

  const io::InputFile& file_;
  std::string shown_;
  std::string packed_;       ///< compressed bytes of the last read
  size_t used_ = 0;          ///< number of bytes of `packed_` that the stream has consumed
  int64_t next_offset_ = 0;  ///< file offset of the next byte to read
  int64_t unpacked_ = 0;     ///< number of unpacked bytes returned so far
  std::unique_ptr<Stream> stream_;
};

}  // namespace ashlar::data
