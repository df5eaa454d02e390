#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ashlar::data {

/// A trie of tokens by their bytes. One hash table contains the children of all nodes. Immutable after the last `add`.
class ByteTrie {
 public:
  /// Reserves space for tokens of `bytes` bytes in total.
  explicit ByteTrie(size_t bytes = 0);

  /// Adds a token. An empty token is ignored. If a token is added twice, the last id is used.
  void add(std::string_view token, int32_t id);

  static constexpr int32_t kRoot = 0;
  /// Returns the child of a node for a byte; -1 if there is none.
  int32_t child(int32_t node, uint8_t byte) const {
    const uint64_t key = key_of(node, byte);
    for (size_t at = slot_of(key);; at = (at + 1) & mask_) {
      if (keys_[at] == key) return children_[at];
      if (keys_[at] == kFree) return -1;
    }
  }
  /// Returns the id of the token that ends at a node; -1 if there is none.
  int32_t id_at(int32_t node) const { return ids_[static_cast<size_t>(node)]; }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  static uint64_t key_of(int32_t node, uint8_t byte) { return static_cast<uint64_t>(node) * 256 + byte; }
  size_t slot_of(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ULL >> 24) & mask_; }

  std::vector<int32_t> ids_{-1};  ///< id of the token that ends at a node; -1 if none
  std::vector<uint64_t> keys_;    ///< keys of the hash table
  std::vector<int32_t> children_;
  size_t mask_ = 0;
};

}  // namespace ashlar::data
