#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ashlar {

/// Makes external text (from a file, a name, a key, an argument, the network) safe to print: on one line, without
/// terminal control or bidirectional formatting. Control characters, line separators, direction marks, zero-width
/// characters, backslashes and invalid UTF-8 become escapes such as \n, \x1b or \u202e; everything else is unchanged.
/// If `text` is longer than `most` bytes, only its first and its last `most` / 2 bytes are used, joined by three dots,
/// so that a path keeps its file name. No character is split.
std::string escaped(std::string_view text, size_t most = 120);

/// Escapes a text as `escaped` does, and single quotes too, and encloses it in single quotes. For external names in
/// messages.
std::string printable(std::string_view text, size_t most = 120);

/// Makes a whole message safe to print. It escapes the same characters as `escaped` except backslashes, because names
/// in the message may already be escaped. All errors and log lines pass through this function, so that a line break in
/// a name cannot begin a new line.
std::string on_one_line(std::string_view message, size_t most = 8000);

}  // namespace ashlar
