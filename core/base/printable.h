#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ashlar {

/// Text that came from outside (a file, a name, a key, an argument, the network), safe to print: one line, at most
/// `most` bytes and some dots, nothing in it that moves a cursor, rings a bell or turns the direction of writing.
/// Control characters, separators of lines, marks of direction, characters without width, backslashes and bytes that
/// are no UTF-8 become escapes such as \n, \x1b or \u202e; everything else stays as it is. Of a longer text the first
/// and the last half are kept, so that a path keeps the name of its file. Never cut inside a character.
std::string escaped(std::string_view text, size_t most = 120);

/// The same in single quotes, those in the text escaped: how a message names anything that came from outside.
std::string printable(std::string_view text, size_t most = 120);

/// A whole message with the names in it: control characters are escaped as above, backslashes stay as they are, because
/// the names may be escaped already. Errors and the log pass all of their text through it, so that a line break in a
/// name cannot begin a line of its own.
std::string on_one_line(std::string_view message, size_t most = 8000);

}  // namespace ashlar
