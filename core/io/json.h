#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace ashlar::io {

/// Runs `read`, which extracts values from external JSON. Exceptions of the JSON library (invalid JSON, a number out of
/// range, a value of another type, a string that is not UTF-8) are converted by `problem` from one plain sentence, such
/// as `a number is out of range: 1e999`. No other place handles the library's exceptions. Every reader of JSON uses
/// this function, so that bad JSON never looks like a bug of the program.
void reading_json(const std::function<Error(const std::string& sentence)>& problem, const std::function<void()>& read);

/// Maximum nesting of objects and lists in external text. The limit is needed because readers recurse once per level
/// and stacks are finite. Deeper nesting is an attack or an accident.
inline constexpr int kMaxJsonDepth = 200;

enum class JsonKeys {
  kLastWins,  ///< the last of equal keys in an object counts, as in Python
  kUnique,    ///< equal keys in an object are an error: for files that only this program writes
};

/// Parses external JSON; call inside `reading_json`, which converts its exceptions: invalid JSON, nesting deeper than
/// kMaxJsonDepth, duplicate keys where they must be unique. The only places that call the library's parser.
nlohmann::json parse_json(std::string_view text, JsonKeys keys = JsonKeys::kLastWins);
/// parse_json that preserves the order of keys.
nlohmann::ordered_json parse_ordered_json(std::string_view text, JsonKeys keys = JsonKeys::kLastWins);
/// Returns nullopt for a text that parse_json refuses.
std::optional<nlohmann::json> try_parse_json(std::string_view text, JsonKeys keys = JsonKeys::kLastWins);

}  // namespace ashlar::io
