#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ashlar {

/// External text (a file, a name, a key, an argument, the network) made safe to print: one line, at most `most` bytes
/// plus dots, without terminal control or bidirectional formatting. Control characters, line separators, direction
/// marks, zero-width characters, backslashes and invalid UTF-8 become escapes such as \n, \x1b or \u202e; everything
/// else is unchanged. Of a longer text the first and the last half are kept, so that a path keeps its file name. Never
/// split inside a character.
std::string escaped(std::string_view text, size_t most = 120);

/// Escapes a text, with its quotes, and encloses it in single quotes: for external names in messages.
std::string printable(std::string_view text, size_t most = 120);

/// A whole message with names in it: control characters are escaped as above, but backslashes are kept, because the
/// names may be escaped already. Errors and the log pass all text through it, so that a line break in a name cannot
/// begin a new line.
std::string on_one_line(std::string_view message, size_t most = 8000);

}  // namespace ashlar
