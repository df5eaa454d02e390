#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace ashlar::data {

/// Finds where the elements of one JSON array begin, in memory that does not grow with it: only strings and brackets
/// are looked at. The bytes come in order, in pieces of any size.
class JsonArrayScan {
 public:
  /// Notes one element in about every `block_bytes`.
  explicit JsonArrayScan(int64_t block_bytes) : block_bytes_(block_bytes) {}
  void add(std::string_view bytes);
  /// Where blocks of elements begin: each at the first byte of one, in ascending order.
  std::vector<int64_t> take_starts() { return std::move(starts_); }

 private:
  int64_t block_bytes_, at_ = 0;
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, expects_element_ = false;
  std::vector<int64_t> starts_;
};

/// The end of the element that begins at `begin`: where its brackets close, or before the comma or bracket behind it;
/// npos when the text ends before.
size_t json_element_end(std::string_view text, size_t begin);

}  // namespace ashlar::data
