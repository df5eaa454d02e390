#pragma once

#include <concepts>
#include <iosfwd>
#include <span>
#include <string_view>

#include "core/base/error.h"

/// One table of names for an enum, beside its declaration; name_of() and parse_enum() read it:
///
///   enum class Colour : uint8_t { kRed, kBlue };
///   inline constexpr EnumName<Colour> kColourNames[] = {{Colour::kRed, "red"}, {Colour::kBlue, "blue"}};
///   constexpr std::span<const EnumName<Colour>> names_of(Colour) { return kColourNames; }
///
/// A namespace inside ashlar with such enums needs `using ashlar::name_of;`.
namespace ashlar {

template <typename E>
struct EnumName {
  E value;
  std::string_view name;
};

/// An enum with a table of names, found where the enum is declared.
template <typename E>
concept NamedEnum = requires(E e) {
  { names_of(e) } -> std::same_as<std::span<const EnumName<E>>>;
};

template <NamedEnum E>
constexpr std::string_view name_of(E value) {
  for (const EnumName<E>& row : names_of(E{}))
    if (row.value == value) return row.name;
  throw Bug("an enum value is missing in its table of names");
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
