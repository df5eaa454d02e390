#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace ashlar::io {

/// Runs `read`, which takes values out of a JSON text that came from outside. Whatever the JSON library throws in it
/// (a text that is no JSON, a number out of range, a value of another type, a string that is not UTF-8) becomes the
/// error that `problem` makes of one plain sentence, such as `a number is out of range: 1e999`. The only place that
/// knows the library's exceptions: every reader of JSON goes through it, so that none of them ends a program as a bug.
void reading_json(const std::function<Error(const std::string& sentence)>& problem, const std::function<void()>& read);

/// How deep objects and lists may lie in each other in a text from outside. What nests deeper is an attack or an
/// accident: readers of a tree call themselves once a level, and the stack of a thread is finite.
inline constexpr int kMaxJsonDepth = 200;

enum class JsonKeys {
  kLastWins,  ///< of two equal keys of an object the last one counts, as Python and most programs have it
  kUnique,    ///< two equal keys of an object are an error: files that only this program writes
};

/// The value of a JSON text that came from outside; inside `reading_json`, which makes an error of whatever it throws:
/// no JSON, nested deeper than kMaxJsonDepth, an equal key where they are unique. The only places that call the
/// library's parser.
nlohmann::json parse_json(std::string_view text, JsonKeys keys = JsonKeys::kLastWins);
/// The same with the order of keys kept.
nlohmann::ordered_json parse_ordered_json(std::string_view text, JsonKeys keys = JsonKeys::kLastWins);
/// Nothing for a text that parse_json refuses.
std::optional<nlohmann::json> try_parse_json(std::string_view text, JsonKeys keys = JsonKeys::kLastWins);

}  // namespace ashlar::io
