#include "data/tokenizer/byte_trie.h"

namespace ashlar::data {

ByteTrie::ByteTrie(size_t bytes) {
  size_t size = 16;
  while (size < 2 * (bytes + 1)) size *= 2;
  keys_.assign(size, kFree);
  children_.assign(size, -1);
  mask_ = size - 1;
}

void ByteTrie::add(std::string_view token, int32_t id) {
  int32_t node = kRoot;
  for (const char c : token) {
    const uint64_t key = key_of(node, static_cast<uint8_t>(c));
    size_t at = slot_of(key);
    while (keys_[at] != kFree && keys_[at] != key) at = (at + 1) & mask_;
    if (keys_[at] == kFree) {
      keys_[at] = key;
      children_[at] = static_cast<int32_t>(ids_.size());
      ids_.push_back(-1);
    }
    node = children_[at];
  }
  if (node != kRoot) ids_[static_cast<size_t>(node)] = id;
}

}  // namespace ashlar::data
