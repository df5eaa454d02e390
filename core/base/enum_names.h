#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string_view>

#include "core/base/error.h"

/// The names of an enum, beside its declaration and in the order of its values; name_of() and parse_enum() read them:
///
///   enum class Colour : uint8_t { kRed, kBlue };
///   constexpr auto names_of(Colour) { return enum_names<Colour>("red", "blue"); }
///
/// A namespace inside ashlar with such enums needs `using ashlar::name_of;`.
namespace ashlar {

template <typename E>
struct EnumName {
  E value;
  std::string_view name;
};

/// The values 0, 1, ... of an enum with their names.
template <typename E, typename... Names>
constexpr std::array<EnumName<E>, sizeof...(Names)> enum_names(const Names&... names) {
  uint8_t value = 0;
  return {EnumName<E>{static_cast<E>(value++), names}...};
}

/// An enum for whose type `names_of` is declared.
template <typename E>
concept NamedEnum = requires(E e) {
  { names_of(e).front() } -> std::convertible_to<EnumName<E>>;
};

template <NamedEnum E>
constexpr std::string_view name_of(E value) {
  for (const EnumName<E>& row : names_of(E{}))
    if (row.value == value) return row.name;
  throw Bug("an enum value has no name");
}

template <NamedEnum E>
std::ostream& operator<<(std::ostream& out, E value) {
  return out << name_of(value);
}

/// Parses a name; false if unknown.
template <NamedEnum E>
constexpr bool parse_enum(std::string_view name, E& value) {
  for (const EnumName<E>& row : names_of(E{})) {
    if (row.name != name) continue;
    value = row.value;
    return true;
  }
  return false;
}

}  // namespace ashlar
