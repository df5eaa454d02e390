#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace ashlar::data {

/// Finds the element boundaries of a JSON array. It stores only the recorded starts, not the text, and parses only
/// strings, brackets and commas. The bytes are passed to `add` in order, in pieces of any size.
class JsonArrayScan {
 public:
  /// Records the start of about one element per `block_bytes` bytes.
  explicit JsonArrayScan(int64_t block_bytes) : block_bytes_(block_bytes) {}
  void add(std::string_view bytes);
  /// Returns the recorded starts (byte offsets of elements, ascending), and removes them from this object.
  std::vector<int64_t> take_starts() { return std::move(starts_); }

 private:
  int64_t block_bytes_, at_ = 0;
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, expects_element_ = false;
  std::vector<int64_t> starts_;
};

/// Returns the end of the element that begins at `begin`. A string, array or object ends after its closing quote or
/// bracket. Any other value extends to the next comma or closing bracket. Returns npos if the text ends before the
/// element ends.
size_t json_element_end(std::string_view text, size_t begin);

}  // namespace ashlar::data
