#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ashlar::data {

/// A binary form that is none of those that `data build` reads.
struct BinaryForm {
  std::string_view what;  ///< "a PNG image"; empty when the bytes are no known form
  bool certain = false;   ///< no text begins so; otherwise only what TextCheck says decides
};
/// Told by the first bytes of a file.
BinaryForm known_binary(std::string_view head);

/// Tells text from other bytes: text has hardly any control characters beside white space, backspace and escape. Of
/// every window of 4 KB at most one byte in 64 may be one, which all but the shortest pieces of compressed, encrypted
/// or numeric data exceed, and a stray NUL in a corpus does not.
class TextCheck {
 public:
  /// Bytes that lie at `offset` of the file; continues the window when they follow the ones before.
  void look(int64_t offset, std::string_view bytes);
  /// Where the first window without text begins; -1 when there is none. Judges the last, unfinished window too.
  int64_t first_binary() const;

 private:
  void close_window();

  int64_t window_begin_ = 0, window_bytes_ = 0, controls_ = 0;
  int64_t binary_ = -1;
};

}  // namespace ashlar::data
