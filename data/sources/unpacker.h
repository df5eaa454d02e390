#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/io/posix_file.h"

namespace ashlar::data {

/// How a file is compressed.
enum class Packing : uint8_t { kNone, kGzip, kZstd };

/// Told by the first bytes, whatever the name of the file. Four bytes are enough.
Packing packing_of(std::string_view head);

/// The bytes of a compressed file from its first to its last, in order. All members of a gzip file and all frames of a
/// zstd file make one text, as gzip -d and zstd -d do; zeros behind the last gzip member are padding. Holds a few
/// hundred kilobytes, of zstd also the window that the file asks for (up to 128 MB; a larger one is refused).
/// Source: RFC 1952 (gzip), RFC 8878 (zstd).
class Unpacker {
 public:
  /// `shown` is how errors call the file. Packing::kNone is a bug.
  Unpacker(const io::InputFile& file, Packing packing, std::string shown);
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  /// The next bytes; fewer than asked only at the end. A file that is cut off, broken or followed by something else is
  /// an input error that names it and the place.
  size_t read(std::span<char> out);
  int64_t packed_bytes() const { return next_offset_; }  ///< of the file, taken so far

 private:
  class Stream;
  class GzipStream;
  class ZstdStream;

  bool refill();  ///< more compressed bytes; false at the end of the file

  const io::InputFile& file_;
  std::string shown_;
  std::string packed_;       ///< compressed bytes read
  size_t used_ = 0;          ///< of these, taken by the stream
  int64_t next_offset_ = 0;  ///< in the file, of the next to read
  int64_t unpacked_ = 0;     ///< bytes given out
  std::unique_ptr<Stream> stream_;
};

}  // namespace ashlar::data
