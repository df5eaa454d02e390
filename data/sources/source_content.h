#pragma once

#include <cstdint>
#include <string_view>

namespace ashlar::data {

/// A binary format that `data build` does not read.
struct BinaryForm {
  std::string_view what;  ///< "a PNG image"; empty for an unknown format
  bool certain = false;   ///< never text; otherwise TextCheck decides
};
/// Detects the format from the first bytes of a file.
BinaryForm known_binary(std::string_view head);

/// Distinguishes text from binary data by control characters other than white space, backspace and escape: text has at
/// most one in 64 bytes of every 4 KB window. A stray NUL in a corpus is still text; compressed, encrypted or numeric
/// data exceeds the limit except in very short pieces.
class TextCheck {
 public:
  /// Checks bytes at `offset` of the file. If they follow the previous bytes, they belong to the same window.
  void look(int64_t offset, std::string_view bytes);
  /// Start of the first window that is not text; -1 if none. Includes the last, incomplete window.
  int64_t first_binary() const;

 private:
  void close_window();

  int64_t window_begin_ = 0, window_bytes_ = 0, controls_ = 0;
  int64_t binary_ = -1;
};

}  // namespace ashlar::data
