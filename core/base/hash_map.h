#pragma once

#include <utility>

#include "absl/container/flat_hash_map.h"

namespace ashlar {

/// absl::flat_hash_map for tables whose size depends on input data. If memory runs out while an absl::flat_hash_map
/// grows, the map can be neither used nor destroyed, since its destructor would read uninitialized slots. So the
/// inserting members below are noexcept: std::bad_alloc then ends the program at once, in the std::terminate handler.
/// Insert only with these members.
template <typename Key, typename Value>
class HashMap : public absl::flat_hash_map<Key, Value> {
  using Base = absl::flat_hash_map<Key, Value>;

 public:
  using Base::Base;

  template <typename K>
  Value& operator[](K&& key) noexcept {
    return Base::operator[](std::forward<K>(key));
  }
  template <typename... Args>
  auto emplace(Args&&... args) noexcept {
    return Base::emplace(std::forward<Args>(args)...);
  }
  template <typename K, typename... Args>
  auto try_emplace(K&& key, Args&&... args) noexcept {
    return Base::try_emplace(std::forward<K>(key), std::forward<Args>(args)...);
  }
  void reserve(size_t n) noexcept { Base::reserve(n); }
};

}  // namespace ashlar
