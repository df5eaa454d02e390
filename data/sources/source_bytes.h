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

/// The bytes of one input by their offsets: of a compressed file those of its content, of a token file those of its
/// ids. Reads from several threads at once are allowed. A compressed file is unpacked once, in order; of what was
/// unpacked everything stays in memory from the first byte that was not released, so that blocks that are read by many
/// threads side by side and released when they are done cost as much as the blocks themselves. A read before that is
/// right too, and unpacks from the start again.
class SourceBytes {
 public:
  explicit SourceBytes(const SourceFile& file);

  /// Fewer bytes than asked only where the input ends.
  int64_t read_at_most(int64_t offset, std::span<std::byte> out);
  /// Nobody will read bytes [begin, end) again. Returns true when that is so for all of the input.
  bool release(int64_t begin, int64_t end);

 private:
  void unpack_until(int64_t end);

  const SourceFile& source_;
  const int64_t base_;  ///< bytes before the first that counts
  io::InputFile file_;

  // The rest is for compressed files.
  std::mutex mutex_;
  std::unique_ptr<Unpacker> unpacker_;
  std::string window_;  ///< unpacked bytes from window_begin_ on
  int64_t window_begin_ = 0;
  int64_t released_ = 0;              ///< all bytes before
  std::map<int64_t, int64_t> ahead_;  ///< released behind that: begin, end
};

}  // namespace ashlar::data
