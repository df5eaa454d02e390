#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/gpu/conformance/case.h"

namespace ashlar::conformance {

/// A case's input, the same in every run.
std::vector<uint32_t> inputs_of(const Case& c);

/// Words that a case writes.
int64_t output_words(const Case& c);

/// What is wrong with `got` where `expected` are the words of the emulator: the first place and how many there are.
/// Empty: nothing. `exact`: also where a GPU may differ.
std::string difference(const Case& c, std::span<const uint32_t> expected, std::span<const uint32_t> got, bool exact);

/// A short text for all words, for files: FNV-1a in 16 hex digits.
std::string digest(std::span<const uint32_t> words);

}  // namespace ashlar::conformance
