#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ashlar {

/// Makes external text (from a file, a name, a key, an argument, the network) safe to print: one line, at most `most`
/// bytes plus dots, without terminal control or bidirectional formatting. Control characters, line separators,
/// direction marks, zero-width characters, backslashes and invalid UTF-8 become escapes such as
///   , \x1b or \u202e; everything else is unchanged. Of a longer text, the first and the last `most` / 2 bytes are
/// kept, so that a path keeps its file name. No character is split.
std::string escaped(std::string_view text, size_t most = 120);

/// Escapes a text, with its quotes, and encloses it in single quotes: for external names in messages.
std::string printable(std::string_view text, size_t most = 120);

/// Makes a whole message safe to print. Control characters are escaped as above, but backslashes are kept, because
/// names in the message may be escaped already. Errors and the log pass all text through it, so that a line break in a
/// name cannot begin a new line.
std::string on_one_line(std::string_view message, size_t most = 8000);

}  // namespace ashlar
