#pragma once

#include "launch/config/schema.h"

/// Short names that the rows of the schema tables use.
namespace ashlar::config::schema_words {

inline constexpr double kMega = 1 << 20;
inline constexpr double kBig = 1e12;  // upper bound of counts that have no natural limit
inline constexpr auto kInt = KeyType::kInt;
inline constexpr auto kNameList = KeyType::kNameList;
inline constexpr auto kNumber = KeyType::kNumber;
inline constexpr auto kNumberOrWord = KeyType::kNumberOrWord;
inline constexpr auto kDerived = Need::kDerived;
inline constexpr auto kOptional = Need::kOptional;

inline constexpr Condition kMoe = {"moe.experts is above 0", [](const RunConfig& c) { return c.model.moe.experts > 0; },
                                   "moe.experts"};

}  // namespace ashlar::config::schema_words

/// Makes KeySpec::member from a path in RunConfig, e.g. MEMBER(model.d_model).
#define MEMBER(path)                               \
  member < [](auto& c) -> auto& { return c.path; } \
  > ()
