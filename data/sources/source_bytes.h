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

/// Reads one input by offset: the bytes of a file, of the unpacked content of a compressed file, or of the ids of a
/// token file. Thread-safe. A compressed file is unpacked in order, and the unpacked data from the first unreleased
/// byte on stays in memory. If threads read blocks in parallel and release each block when done, the memory is about
/// the size of these blocks. If a caller reads bytes that are no longer in memory, the file is unpacked again from the
/// start.
class SourceBytes {
 public:
  explicit SourceBytes(const SourceFile& file);

  /// Reads bytes from `offset` on into `out`. Returns their number, which is less than out.size() only at the end of
  /// the input.
  int64_t read_at_most(int64_t offset, std::span<std::byte> out);
  /// Declares that the caller does not read bytes [begin, end) again. Returns true when the whole input is released.
  bool release(int64_t begin, int64_t end);

 private:
  void unpack_until(int64_t end);

  const SourceFile& source_;
  const int64_t base_;  ///< file offset of the first byte of the input; not 0 for a token file with a header
  io::InputFile file_;

  // The members below are used only for compressed files.
  std::mutex mutex_;
  std::unique_ptr<Unpacker> unpacker_;
  std::string window_;  ///< unpacked bytes from window_begin_ on
  int64_t window_begin_ = 0;
  int64_t released_ = 0;              ///< all bytes before this offset are released
  std::map<int64_t, int64_t> ahead_;  ///< released ranges [begin, end) that start after `released_`
};

}  // namespace ashlar::data
