#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>

namespace ashlar {

/// Builds a text in memory that the caller provides, and truncates the text to the size of that memory. For code that
/// must not allocate, such as a signal handler.
class FixedText {
 public:
  explicit FixedText(std::span<char> memory) : memory_(memory) {}

  FixedText& add(std::string_view part) {
    const size_t size = std::min(part.size(), memory_.size() - size_);
    std::copy_n(part.begin(), size, memory_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += size;
    return *this;
  }
  FixedText& add(std::integral auto number) {
    char digits[24];
    return add({digits, std::to_chars(digits, digits + sizeof(digits), number).ptr});
  }
  std::string_view text() const { return {memory_.data(), size_}; }

 private:
  std::span<char> memory_;
  size_t size_ = 0;
};

}  // namespace ashlar
