#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ashlar {

/// Letters to insert, remove or replace, and neighbours to swap, that turn one word into the other (Levenshtein 1966,
/// Damerau 1964; no letter is changed twice).
size_t edit_distance(std::string_view a, std::string_view b);

/// Whether so many edits between two words are a slip of the hand: at most a third of the longer one's letters, and one
/// always. More make another word, and a guess would mislead. The one rule of every "did you mean".
bool is_slip(size_t distance, std::string_view a, std::string_view b);

/// The nearest of the known words, where it is a slip away; empty otherwise. Of several equally near the first.
std::string nearest_word(std::string_view word, std::span<const std::string> known);

}  // namespace ashlar
