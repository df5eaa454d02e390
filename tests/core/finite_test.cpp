// Which elements are not finite, and words that are near.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/nearest.h"
#include "core/io/convert.h"

namespace ashlar::io {
namespace {

TEST(Finite, TheFirstPlaceInEveryTypeAtEveryAlignment) {
  const double bad_values[] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity()};
  const char* const words[] = {"nan", "inf", "-inf"};
  for (const FileDType dtype : {FileDType::kF64, FileDType::kF32, FileDType::kF16, FileDType::kBF16}) {
    const auto size = static_cast<size_t>(size_of(dtype));
    const auto as_bytes = [&](double value) {
      std::vector<std::byte> bytes(size);
      convert(FileDType::kF64, std::as_bytes(std::span(&value, 1)), dtype, bytes);
      return bytes;
    };
    // Lengths on both sides of a block of 4 KiB, and the ends of ranges of each type.
    for (const size_t n : {size_t{0}, size_t{1}, size_t{3}, 4096 / size, 4096 / size + 1, size_t{9001}}) {
      std::vector<std::byte> all(n * size + 1);
      const std::span<std::byte> odd = std::span(all).subspan(1);
      for (size_t i = 0; i < n; ++i) {
        const double usual[] = {1, -0.0, 65504, -65504, 5e-324, -1e-8};
        const std::vector<std::byte> bytes = as_bytes(usual[i % 6]);
        std::memcpy(odd.data() + i * size, bytes.data(), size);
      }
      EXPECT_EQ(first_non_finite(dtype, odd), -1) << name_of(dtype) << " " << n;
      for (const size_t at : {size_t{0}, n / 2, n - 1}) {
        if (n == 0) continue;
        for (int i = 0; i < 3; ++i) {
          std::vector<std::byte> one = all;
          const std::vector<std::byte> bad = as_bytes(bad_values[i]);
          std::memcpy(one.data() + 1 + at * size, bad.data(), size);
          std::memcpy(one.data() + 1 + (n - 1) * size, bad.data(), size);
          EXPECT_EQ(first_non_finite(dtype, std::span(one).subspan(1)), static_cast<int64_t>(at)) << name_of(dtype);
          EXPECT_STREQ(non_finite_word(dtype, bad), words[i]);
        }
      }
    }
  }
}

TEST(Nearest, OnlyASlipIsNear) {
  const std::vector<std::string> commands = {"train", "eval", "generate", "tokenizer"};
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("trian", "train"), 1U);
  EXPECT_EQ(nearest_word("trian", commands), "train");
  EXPECT_EQ(nearest_word("tarin", commands), "train");
  EXPECT_EQ(nearest_word("trxxn", commands), "");  // two of five letters
  EXPECT_EQ(nearest_word("genrate", commands), "generate");
  EXPECT_EQ(nearest_word("tokenise", commands), "tokenizer");
  EXPECT_EQ(nearest_word("frobnicate", commands), "");
  EXPECT_EQ(nearest_word("x", commands), "");
  EXPECT_EQ(nearest_word(std::string(100000, 'x'), commands), "");
}

}  // namespace
}  // namespace ashlar::io
