#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string_view>

#include "core/base/error.h"

/// Names for the values of enums. Declare `names_of` beside an enum, with the names in the order of its values. Then
/// name_of() and parse_enum() work for the enum:
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

/// Pairs the values 0, 1, 2, ... of the enum E with the given names.
template <typename E, typename... Names>
constexpr std::array<EnumName<E>, sizeof...(Names)> enum_names(const Names&... names) {
  uint8_t value = 0;
  return {EnumName<E>{static_cast<E>(value++), names}...};
}

/// True for an enum type for which `names_of` is declared.
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

/// Sets `value` to the enum value that has this name. Returns false if there is none.
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
