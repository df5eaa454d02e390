#include "core/base/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace ashlar {

size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the dynamic-programming table: `before` is for the first i - 2 letters of a, `above` for i - 1, `row` for
  // i.
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

bool is_slip(size_t distance, std::string_view a, std::string_view b) {
  return distance <= std::max<size_t>(1, std::max(a.size(), b.size()) / 3);
}

std::string nearest_word(std::string_view word, std::span<const std::string> known) {
  constexpr size_t kLongest = 100;  // longest word that is compared, since the cost grows with the length
  if (word.size() > kLongest) return "";
  const std::string* best = nullptr;
  size_t least = 0;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(candidate, word);
    if (!is_slip(distance, candidate, word) || (best != nullptr && distance >= least)) continue;
    best = &candidate;
    least = distance;
  }
  return best == nullptr ? "" : *best;
}

}  // namespace ashlar
