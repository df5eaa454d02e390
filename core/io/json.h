#pragma once

#include <functional>
#include <string>

#include "core/base/error.h"

namespace ashlar::io {

/// Runs `read`, which takes values out of a JSON text that came from outside. Whatever the JSON library throws in it
/// (a text that is no JSON, a number out of range, a value of another type, a string that is not UTF-8) becomes the
/// error that `problem` makes of one plain sentence, such as `a number is out of range: 1e999`. The only place that
/// knows the library's exceptions: every reader of JSON goes through it, so that none of them ends a program as a bug.
void reading_json(const std::function<Error(const std::string& sentence)>& problem, const std::function<void()>& read);

}  // namespace ashlar::io
