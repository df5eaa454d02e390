#include "tests/gpu/conformance/words.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string_view>

#include "core/base/strings.h"

namespace ashlar::conformance {

namespace {

/// A float of the case's kind; its random bits come from the generator in an order that no library may change.
template <typename T, typename Bits>
Bits number(std::mt19937_64& random) {
  using Limits = std::numeric_limits<T>;
  constexpr T kSpecial[] = {T{0},          -T{0}, Limits::infinity(), -Limits::infinity(), Limits::denorm_min(),
                            Limits::max(), T{1},  -Limits::min() / 2};
  const uint64_t kind = random() % 32, bits = random();
  if (kind == 31) return std::bit_cast<Bits>(kSpecial[bits % 8]);
  if (kind % 2 == 0) return static_cast<Bits>(bits);
  const T mantissa = T{1} + static_cast<T>(bits >> 12) * static_cast<T>(0x1p-52);
  const T value = std::ldexp(mantissa, static_cast<int>(bits % 41) - 20);
  return std::bit_cast<Bits>((bits >> 8 & 1) != 0 ? -value : value);
}

}  // namespace

std::vector<uint32_t> inputs_of(const Case& c) {
  uint64_t seed = 0;
  for (const char letter : std::string_view(c.name)) seed = seed * 131 + static_cast<unsigned char>(letter);
  std::mt19937_64 random(seed);
  std::vector<uint32_t> words(static_cast<size_t>(kBlocks * kThreads * c.words_in));
  for (size_t i = 0; i < words.size(); ++i) {
    switch (c.inputs) {
      case Inputs::kBits: words[i] = static_cast<uint32_t>(random() >> 32); break;
      case Inputs::kFloats: words[i] = number<float, uint32_t>(random); break;
      case Inputs::kUnit:
        words[i] =
            std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(random() >> 40) - 0x800000) * 0x1p-21F);
        break;
      case Inputs::kDoubles: {
        const auto both = number<double, uint64_t>(random);
        words[i] = static_cast<uint32_t>(both);
        words[++i] = static_cast<uint32_t>(both >> 32);
      }
    }
  }
  return words;
}

int64_t output_words(const Case& c) { return int64_t{kBlocks} * kThreads * c.words_out; }

std::string difference(const Case& c, std::span<const uint32_t> expected, std::span<const uint32_t> got, bool exact) {
  if (expected.size() != got.size()) return str_cat(c.name, ": ", got.size(), " words, expected ", expected.size());
  int64_t wrong = 0;
  size_t first = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == got[i]) continue;
    if (!exact && c.allowed > 0) {
      const double want = std::bit_cast<float>(expected[i]), have = std::bit_cast<float>(got[i]);
      if (std::abs(have - want) <= c.allowed * std::max(std::abs(want), c.size)) continue;
    }
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return {};
  const auto row = static_cast<size_t>(c.words_out);
  return str_cat(c.name, ": ", wrong, " of ", expected.size(), " words differ; first output ", first % row,
                 " of thread ", first / row, ": got ", got[first], " (as fp32 ", std::bit_cast<float>(got[first]),
                 "), expected ", expected[first], " (", std::bit_cast<float>(expected[first]), ")");
}

std::string digest(std::span<const uint32_t> words) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const uint32_t word : words) {
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (word >> shift & 0xff)) * 0x100000001b3ULL;
  }
  std::string text(16, '0');
  for (size_t i = 0; i < 16; ++i) text[i] = "0123456789abcdef"[hash >> (60 - 4 * i) & 15];
  return text;
}

}  // namespace ashlar::conformance
