#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ashlar {

/// Letters to insert, remove or replace, and neighbours to swap, that turn one word into the other (Levenshtein 1966,
/// Damerau 1964; no letter is changed twice).
size_t edit_distance(std::string_view a, std::string_view b);

/// True if this many edits between two words are a typing mistake: at most a third of the longer word's letters, and
/// always one. More edits would make the guess misleading. Used by every "did you mean".
bool is_slip(size_t distance, std::string_view a, std::string_view b);

/// The nearest known word, if it is within a typing mistake; empty otherwise. On ties the first.
std::string nearest_word(std::string_view word, std::span<const std::string> known);

}  // namespace ashlar
