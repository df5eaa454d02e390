#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/enum_names.h"
#include "launch/config/run_config.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::config {

/// The value of a key. The KeyType of the key determines the alternative of this variant. For example, the value of a
/// kNumber key is always a double, even if the file has an integer.
using Value = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<DataSource>,
                           std::vector<std::string>, std::vector<double>>;

enum class KeyType : uint8_t {
  kInt,
  kNumber,  ///< integers are accepted too
  kBool,
  kString,        ///< not empty
  kWord,          ///< one of KeySpec::words
  kNumberOrWord,  ///< a number in range, or one of KeySpec::words
  kIntList,
  kNumberList,
  kKeyList,   ///< names of model keys; a single name needs no brackets
  kNameList,  ///< names; a single name needs no brackets
  kSources,   ///< data.path: a string, or a list of {path, weight}
};

/// Reads and writes the member of RunConfig that a key sets, and lists the words of an enum. Made by member(). For a
/// key that sets no member, e.g. rope.fraction, the functions are null, and a rule in resolve*.cpp reads the value.
struct Member {
  std::optional<Value> (*get)(const RunConfig&) = nullptr;  ///< returns nothing if the key is absent
  /// Sets the member. If `value` is a word and the member is a number, a plain number stays unchanged and an optional
  /// number becomes empty: a rule in resolve*.cpp converts words such as `head_dim^-0.5` to a number.
  void (*set)(RunConfig&, const Value&) = nullptr;
  std::vector<std::string_view> (*words)() = nullptr;  ///< words of an enum; null for other types
  KeyType type = KeyType::kString;
};

namespace detail {

template <typename T>
std::optional<Value> value_of_member(const T& member) {
  if constexpr (NamedEnum<T>) {
    return std::string(name_of(member));
  } else if constexpr (std::is_same_v<T, std::optional<double>>) {
    return member ? Value(*member) : Value(std::string("none"));
  } else if constexpr (std::is_same_v<T, std::optional<std::string>> || std::is_same_v<T, std::optional<int64_t>>) {
    return member ? std::optional<Value>(*member) : std::nullopt;
  } else if constexpr (std::is_same_v<T, int>) {
    return int64_t{member};
  } else if constexpr (requires { member.empty(); } && !std::is_same_v<T, std::string>) {
    return member.empty() ? std::nullopt : std::optional<Value>(member);
  } else {
    return Value(member);
  }
}

template <typename T>
void set_member(T& member, const Value& value) {
  if constexpr (NamedEnum<T>) {
    ASHLAR_CHECK(parse_enum(std::get<std::string>(value), member), "the enum has no value of the name ",
                 std::get<std::string>(value));
  } else if constexpr (std::is_same_v<T, double>) {
    if (const double* number = std::get_if<double>(&value)) member = *number;
  } else if constexpr (std::is_same_v<T, std::optional<double>>) {
    member = std::get_if<double>(&value) != nullptr ? std::optional(std::get<double>(value)) : std::nullopt;
  } else if constexpr (std::is_same_v<T, std::optional<std::string>>) {
    member = std::get<std::string>(value);
  } else if constexpr (std::is_same_v<T, std::optional<int64_t>>) {
    member = std::get<int64_t>(value);
  } else if constexpr (std::is_same_v<T, int>) {
    member = static_cast<int>(std::get<int64_t>(value));
  } else {
    member = std::get<T>(value);
  }
}

/// Returns the type of a key that sets a member of type T.
template <typename T>
constexpr KeyType key_type() {
  using enum KeyType;
  if (NamedEnum<T>) return kWord;
  if (std::is_same_v<T, bool>) return kBool;
  if (std::is_integral_v<T> || std::is_same_v<T, std::optional<int64_t>>) return kInt;
  if (std::is_same_v<T, double>) return kNumber;
  if (std::is_same_v<T, std::optional<double>>) return kNumberOrWord;
  if (std::is_same_v<T, std::vector<int64_t>>) return kIntList;
  if (std::is_same_v<T, std::vector<double>>) return kNumberList;
  if (std::is_same_v<T, std::vector<std::string>>) return kKeyList;
  return std::is_same_v<T, std::vector<DataSource>> ? kSources : kString;
}

template <NamedEnum E>
std::vector<std::string_view> enum_words() {
  std::vector<std::string_view> words;
  for (const EnumName<E>& row : names_of(E{})) words.push_back(row.name);
  return words;
}

}  // namespace detail

/// Makes the accessors of a member. `kAccess` is a lambda that takes a RunConfig (const or not) and returns a reference
/// to the member.
template <auto kAccess>
constexpr Member member() {
  using T = std::remove_cvref_t<decltype(kAccess(std::declval<RunConfig&>()))>;
  Member m = {.get = [](const RunConfig& c) { return detail::value_of_member<T>(kAccess(c)); },
              .set = [](RunConfig& c, const Value& value) { detail::set_member<T>(kAccess(c), value); },
              .type = detail::key_type<T>()};
  if constexpr (NamedEnum<T>) m.words = &detail::enum_words<T>;
  return m;
}

}  // namespace ashlar::config
