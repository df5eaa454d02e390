#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace ashlar::data {

/// Finds the element boundaries of a JSON array with constant memory: it parses only strings and brackets. The bytes
/// are given in order, in pieces of any size.
class JsonArrayScan {
 public:
  /// Records about one element per `block_bytes`.
  explicit JsonArrayScan(int64_t block_bytes) : block_bytes_(block_bytes) {}
  void add(std::string_view bytes);
  /// Moves out the starts of the blocks, ascending. Each is the first byte of an element.
  std::vector<int64_t> take_starts() { return std::move(starts_); }

 private:
  int64_t block_bytes_, at_ = 0;
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, expects_element_ = false;
  std::vector<int64_t> starts_;
};

/// Returns the end of the element that begins at `begin`: after its closing bracket, or, for a plain value, before the
/// next comma or bracket. Returns npos if the text ends before that.
size_t json_element_end(std::string_view text, size_t begin);

}  // namespace ashlar::data
