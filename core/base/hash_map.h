#pragma once

#include <utility>

#include "absl/container/flat_hash_map.h"

namespace ashlar {

/// absl::flat_hash_map for tables that grow with input. If memory runs out while the table grows, it can be neither
/// used nor destroyed, since its destructor would read uninitialized slots. The program then ends at once in its
/// std::terminate handler, with std::bad_alloc as the exception. Insert only with the members below.
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
