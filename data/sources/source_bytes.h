#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "core/io/posix_file.h"
#include "data/sources/source_list.h"
#include "data/sources/unpacker.h"

namespace ashlar::data {

/// The bytes of one input, read by offset: of the file, of the unpacked content of a compressed file, or of the ids of
/// a token file. Thread-safe. A compressed file is unpacked once, in order. Unpacked data stays in memory, beginning
/// with the first byte that is not released. If threads read blocks in parallel and release them when done, the memory
/// is about the size of those blocks. Released bytes can be read again, but the file is then unpacked from the start.
class SourceBytes {
 public:
  explicit SourceBytes(const SourceFile& file);

  /// Returns fewer bytes than requested only at the end of the input.
  int64_t read_at_most(int64_t offset, std::span<std::byte> out);
  /// Declares that bytes [begin, end) are not read again. Returns true when all of the input is released.
  bool release(int64_t begin, int64_t end);

 private:
  void unpack_until(int64_t end);

  const SourceFile& source_;
  const int64_t base_;  ///< offset of the first used byte
  io::InputFile file_;

  // The rest is for compressed files.
  std::mutex mutex_;
  std::unique_ptr<Unpacker> unpacker_;
  std::string window_;  ///< unpacked bytes from window_begin_ on
  int64_t window_begin_ = 0;
  int64_t released_ = 0;              ///< all bytes before this offset are released
  std::map<int64_t, int64_t> ahead_;  ///< released ranges after that: begin, end
};

}  // namespace ashlar::data
