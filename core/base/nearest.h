#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ashlar {

/// The smallest number of edits that turn one word into the other. An edit inserts, removes or replaces a letter, or
/// swaps two neighbours (Levenshtein 1966, Damerau 1964; no letter is changed twice).
size_t edit_distance(std::string_view a, std::string_view b);

/// True if this many edits between two words may be a typing mistake: one edit always, otherwise at most a third of the
/// letters of the longer word. With more edits a guess would be misleading. Used by every "did you mean".
bool is_slip(size_t distance, std::string_view a, std::string_view b);

/// The nearest known word (the first of several), if the difference may be a typing mistake; empty otherwise.
std::string nearest_word(std::string_view word, std::span<const std::string> known);

}  // namespace ashlar
