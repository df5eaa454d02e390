#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ashlar {

/// Returns the smallest number of edits that turn one word into the other. An edit inserts, removes or replaces a
/// letter, or swaps two neighbours (Levenshtein 1966, Damerau 1964; no letter is changed twice).
size_t edit_distance(std::string_view a, std::string_view b);

/// True if `distance` edits between the words a and b may be a typing mistake: one edit, or at most a third of the
/// letters of the longer word. Every "did you mean" uses this limit, since a more distant suggestion would mislead.
bool is_slip(size_t distance, std::string_view a, std::string_view b);

/// Returns the word of `known` with the smallest edit distance to `word`, the first one if several are equally near.
/// Words too different for a typing mistake (is_slip) are left out; if no word remains, returns an empty text.
std::string nearest_word(std::string_view word, std::span<const std::string> known);

}  // namespace ashlar
