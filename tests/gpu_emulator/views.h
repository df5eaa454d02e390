#pragma once

#include <tuple>
#include <type_traits>

#include "core/tensor/view.h"

namespace ashlar {

/// Calls `visit` with each ConstView and MutView that an args struct lists in its `views()` and that is not absent:
/// what the call reads and what it writes. The views of nested structs are among them.
template <typename T, typename Visit>
void for_each_view(const T& value, const Visit& visit) {
  if constexpr (std::is_same_v<T, ConstView> || std::is_same_v<T, MutView>) {
    if (value) visit(value);
  } else {
    std::apply([&](const auto&... members) { (for_each_view(members, visit), ...); }, value.views());
  }
}

}  // namespace ashlar
