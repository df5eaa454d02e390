#pragma once

#include <cstdint>
#include <string_view>

namespace ashlar::data {

/// A binary format that is not text.
struct BinaryForm {
  std::string_view what;  ///< name of the format, such as "a PNG image"; empty if unknown
  bool certain = false;   ///< true if such a file is never text; otherwise TextCheck decides
};
inline constexpr std::string_view kParquetForm = "a Parquet file";
/// Detects the format from the first bytes of a file.
BinaryForm known_binary(std::string_view head);

/// Distinguishes text from binary data by control characters other than white space, backspace and escape. A file is
/// text if no 4 KB window has more than one such character per 64 bytes. A file with a stray NUL is therefore still
/// text. Compressed, encrypted or numeric data exceeds the limit except in very short pieces.
class TextCheck {
 public:
  /// Counts the control characters of `bytes`, which are at `offset` of the file. If `bytes` directly follow the bytes
  /// of the previous call, they continue the last window of that call. Otherwise a new window begins.
  void look(int64_t offset, std::string_view bytes);
  /// Returns the offset of the first window that is not text, or -1 if there is none. The last window is checked even
  /// if it is incomplete.
  int64_t first_binary() const;

 private:
  void close_window();

  int64_t window_begin_ = 0, window_bytes_ = 0, controls_ = 0;
  int64_t binary_ = -1;
};

}  // namespace ashlar::data
