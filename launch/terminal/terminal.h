#pragma once

#include <string_view>

namespace ashlar::terminal {

/// Clears the line on which the cursor stands and moves the cursor to its beginning.
inline constexpr std::string_view kErase = "\r\x1b[K";

/// The variable in which `ashlar launch` gives the ranks the width of its terminal.
inline constexpr const char* kWidthVariable = "ASHLAR_TERMINAL_WIDTH";

/// Returns the number of columns of a terminal on which a line can be redrawn; 0 for any other file, and with TERM=dumb
/// or without TERM. A terminal that does not know its size has 80.
int width_of(int fd);

/// Returns the width of the terminal of `ashlar launch`; 0 if it has none.
int width_of_launcher();

}  // namespace ashlar::terminal
