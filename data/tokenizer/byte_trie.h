#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ashlar::data {

/// Tokens by their bytes, as a trie whose children are found in a hash table. Immutable after the last `add`.
class ByteTrie {
 public:
  /// For tokens of so many bytes in all.
  explicit ByteTrie(size_t bytes = 0);

  /// An empty token is not kept; of equal ones the last counts.
  void add(std::string_view token, int32_t id);

  static constexpr int32_t kRoot = 0;
  /// The node that a byte leads to; -1: no token goes on so.
  int32_t child(int32_t node, uint8_t byte) const {
    const uint64_t key = key_of(node, byte);
    for (size_t at = slot_of(key);; at = (at + 1) & mask_) {
      if (keys_[at] == key) return children_[at];
      if (keys_[at] == kFree) return -1;
    }
  }
  /// The token that ends at a node; -1: none.
  int32_t id_at(int32_t node) const { return ids_[static_cast<size_t>(node)]; }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  static uint64_t key_of(int32_t node, uint8_t byte) { return static_cast<uint64_t>(node) * 256 + byte; }
  size_t slot_of(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ULL >> 24) & mask_; }

  std::vector<int32_t> ids_{-1};  ///< by node
  std::vector<uint64_t> keys_;    ///< of the hash table
  std::vector<int32_t> children_;
  size_t mask_ = 0;
};

}  // namespace ashlar::data
