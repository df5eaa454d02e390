#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Python's text functions, with which lm-evaluation-harness makes prompts. Texts are UTF-8.
namespace ashlar::tasks {

std::string_view strip_left(std::string_view text);   ///< str.lstrip()
std::string_view strip_right(std::string_view text);  ///< str.rstrip()
std::string_view strip(std::string_view text);        ///< str.strip()
/// str.capitalize(). The first character becomes a capital if it is Latin, Greek, Cyrillic or Armenian.
std::string capitalize(std::string_view text);
int64_t length(std::string_view text);  ///< len(text): code points
std::string replace_all(std::string text, std::string_view from, std::string_view to);
/// Returns the bytes of the first character; 0 for an empty text.
size_t first_character(std::string_view text);

}  // namespace ashlar::tasks
