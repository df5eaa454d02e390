#pragma once

#include <charconv>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace ashlar {

namespace internal {
// absl::StrCat takes absl::string_view, which is std::string_view in some builds of Abseil and a different class in
// others. This conversion works in both cases.
template <typename T>
decltype(auto) cat_part(const T& part) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return absl::string_view(part.data(), part.size());
  } else {
    return (part);
  }
}
}  // namespace internal

/// Joins the parts (texts or numbers) into one string.
template <typename... Parts>
std::string str_cat(const Parts&... parts) {
  return absl::StrCat(internal::cat_part(parts)...);
}

/// Returns a list of the items, separated by commas. `text_of` gives the text of an item: a function or a member.
template <typename Items, typename TextOf = std::identity>
std::string comma_list(const Items& items, const TextOf& text_of = {}) {
  std::string list;
  for (const auto& item : items) list += str_cat(list.empty() ? "" : ", ", std::invoke(text_of, item));
  return list;
}

/// Returns the number that `text` is; nothing if `text` is anything else or out of range.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace ashlar
