#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace ashlar {

namespace internal {
// Distributions differ in whether absl::string_view is std::string_view; this makes either work.
template <typename T>
decltype(auto) cat_part(const T& part) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return absl::string_view(part.data(), part.size());
  } else {
    return (part);
  }
}
}  // namespace internal

/// Joins the parts, texts and numbers, into one string.
template <typename... Parts>
std::string str_cat(const Parts&... parts) {
  return absl::StrCat(internal::cat_part(parts)...);
}

}  // namespace ashlar
