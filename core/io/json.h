#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace ashlar::io {

/// Runs `read`, which extracts values from external JSON. If the JSON library throws an exception (invalid JSON, a
/// number out of range, a value of another type, a string that is not UTF-8), throws instead the Error that `problem`
/// makes from one plain sentence, such as `it is not valid JSON at byte 17`. All code that reads JSON uses this
/// function, so that bad JSON is never reported as a bug of the program.
void reading_json(const std::function<Error(const std::string& sentence)>& problem, const std::function<void()>& read);

/// Maximum nesting depth of objects and lists in external JSON. Code that reads JSON recurses once per level, so deeper
/// nesting could overflow the stack.
inline constexpr int kMaxJsonDepth = 200;

enum class JsonKeys {
  kLastWins,  ///< the last of several equal keys in an object is used, as in Python
  kUnique,    ///< equal keys in an object are an error: for files that only this program writes
};

/// Parses external JSON. Must be called inside `reading_json`, which converts exceptions to Errors: for invalid JSON,
/// for nesting deeper than kMaxJsonDepth and, with kUnique, for duplicate keys. No other code calls the library's
/// parser.
nlohmann::json parse_json(std::string_view text, JsonKeys keys = JsonKeys::kLastWins);
/// Like parse_json, but preserves the order of keys.
nlohmann::ordered_json parse_ordered_json(std::string_view text, JsonKeys keys = JsonKeys::kLastWins);
/// Like parse_json, but returns nullopt if the text is invalid or breaks a rule of parse_json.
std::optional<nlohmann::json> try_parse_json(std::string_view text, JsonKeys keys = JsonKeys::kLastWins);

}  // namespace ashlar::io
