#include "tests/layouts/pairwise.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace ashlar::testing {
namespace {

constexpr int kFree = -1, kTrials = 60;

/// A pair of values: axis and value of each, the lower axis first.
struct Pair {
  int a, value_a, b, value_b;
  auto operator<=>(const Pair&) const = default;
};

/// The same numbers everywhere.
class Chance {
 public:
  int below(int n) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<int>((state_ >> 33) % static_cast<uint64_t>(n));
  }

 private:
  uint64_t state_ = 1;
};

class Search {
 public:
  Search(std::span<const int> sizes, const Allowed& allowed) : sizes_(sizes.begin(), sizes.end()), allowed_(allowed) {
    const int axes = static_cast<int>(sizes_.size());
    for (int a = 0; a < axes; ++a) {
      for (int b = a + 1; b < axes; ++b) {
        for (int x = 0; x < sizes_[a]; ++x) {
          for (int y = 0; y < sizes_[b]; ++y) {
            Row row(sizes_.size(), kFree);
            row[a] = x;
            row[b] = y;
            if (possible(row)) missing_.insert({a, x, b, y});
          }
        }
      }
    }
  }

  std::vector<Row> rows() {
    std::vector<Row> all;
    while (!missing_.empty()) {
      Row best;
      size_t most = 0;
      for (int trial = 0; trial < kTrials; ++trial) {
        Row row = candidate();
        if (const size_t gain = covered(row).size(); gain > most) {
          most = gain;
          best = std::move(row);
        }
      }
      for (const Pair& pair : covered(best)) missing_.erase(pair);
      all.push_back(std::move(best));
    }
    return all;
  }

 private:
  /// Whether some allowed row has these values. The first values of free axes allow most, but for those that are tried.
  bool possible(Row row) const {
    const auto free = std::find(row.begin(), row.end(), kFree);
    if (free == row.end()) return allowed_(row);
    // Only some axes bind others: the rest stay at their first value.
    std::vector<size_t> open;
    for (size_t axis = 0; axis < row.size(); ++axis) {
      if (row[axis] != kFree) continue;
      row[axis] = 0;
      open.push_back(axis);
    }
    return allowed_(row) || possible_with(row, open, 0);
  }
  /// Two free axes at other values than the first are enough for any of our rules.
  bool possible_with(Row& row, const std::vector<size_t>& open, int depth) const {
    if (depth == 2) return false;
    for (const size_t axis : open) {
      const int before = row[axis];
      for (int value = 0; value < sizes_[axis]; ++value) {
        row[axis] = value;
        if (allowed_(row) || possible_with(row, open, depth + 1)) return true;
      }
      row[axis] = before;
    }
    return false;
  }

  std::vector<Pair> covered(const Row& row) const {
    std::vector<Pair> pairs;
    for (int a = 0; a < static_cast<int>(row.size()); ++a) {
      for (int b = a + 1; b < static_cast<int>(row.size()); ++b) {
        const Pair pair{a, row[a], b, row[b]};
        if (row[a] != kFree && row[b] != kFree && missing_.contains(pair)) pairs.push_back(pair);
      }
    }
    return pairs;
  }

  Row candidate() {
    auto start = missing_.begin();
    std::advance(start, chance_.below(static_cast<int>(missing_.size())));
    Row row(sizes_.size(), kFree);
    row[start->a] = start->value_a;
    row[start->b] = start->value_b;
    std::vector<int> order(sizes_.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[chance_.below(static_cast<int>(i) + 1)]);
    for (const int axis : order) {
      if (row[axis] != kFree) continue;
      int best = 0, most = -1;
      for (int value = 0; value < sizes_[axis]; ++value) {  // of equal ones the first, the plainest
        row[axis] = value;
        if (!possible(row)) continue;
        if (const int gain = static_cast<int>(covered(row).size()); gain > most) {
          most = gain;
          best = value;
        }
      }
      row[axis] = best;
    }
    ASHLAR_CHECK(allowed_(row), "a row that began as possible is not");
    return row;
  }

  const std::vector<int> sizes_;
  const Allowed& allowed_;
  std::set<Pair> missing_;
  Chance chance_;
};

/// Rows that have every pair -> fewer that have them: the last row is left out, and single values are changed until no
/// pair lacks. A change that loses pairs is taken at times, or the search would stay where it began.
class Reduction {
 public:
  Reduction(std::span<const int> sizes, const Allowed& allowed) : sizes_(sizes), allowed_(allowed) {
    for (const int size : sizes_) {
      first_.push_back(values_);
      values_ += size;
    }
  }

  std::vector<Row> fewer(std::vector<Row> rows) {
    for (;;) {
      std::vector<Row> next(rows.begin(), rows.end() - 1);
      if (!repaired(next, pairs_of(rows))) return rows;
      rows = std::move(next);
    }
  }

 private:
  static constexpr int kSteps = 1'500'000, kReluctance = 80;
  using Times = std::vector<int>;  // [values of all axes x the same]

  size_t index(int a, int value_a, int b, int value_b) const {
    return static_cast<size_t>((first_[a] + value_a) * values_ + first_[b] + value_b);
  }
  /// How often each pair occurs, in both orders of its axes.
  Times pairs_of(const std::vector<Row>& rows) const {
    Times times(static_cast<size_t>(values_ * values_), 0);
    const int axes = static_cast<int>(sizes_.size());
    for (const Row& row : rows) {
      for (int a = 0; a < axes; ++a)
        for (int b = 0; b < axes; ++b) times[index(a, row[a], b, row[b])] += a != b ? 1 : 0;
    }
    return times;
  }

  bool repaired(std::vector<Row>& rows, const Times& wanted) {
    Times times = pairs_of(rows);
    int missing = 0;  // each twice
    for (size_t pair = 0; pair < times.size(); ++pair) missing += wanted[pair] > 0 && times[pair] == 0 ? 1 : 0;
    for (int step = 0; step < kSteps && missing > 0; ++step) {
      Row& row = rows[static_cast<size_t>(chance_.below(static_cast<int>(rows.size())))];
      const int axis = chance_.below(static_cast<int>(sizes_.size()));
      const int before = row[axis], value = chance_.below(sizes_[axis]);
      int lost = 0;
      for (int b = 0; b < static_cast<int>(row.size()); ++b) {
        if (b == axis || value == before) continue;
        lost += times[index(axis, before, b, row[b])] == 1 ? 1 : 0;
        lost -= times[index(axis, value, b, row[b])] == 0 ? 1 : 0;
      }
      if (value == before || !dared(lost)) continue;
      row[axis] = value;
      if (!allowed_(row)) {
        row[axis] = before;
        continue;
      }
      for (int b = 0; b < static_cast<int>(row.size()); ++b) {
        if (b == axis) continue;
        --times[index(axis, before, b, row[b])], --times[index(b, row[b], axis, before)];
        ++times[index(axis, value, b, row[b])], ++times[index(b, row[b], axis, value)];
      }
      missing += 2 * lost;
    }
    return missing == 0;
  }
  /// A change that loses n pairs is taken once in kReluctance^n times.
  bool dared(int lost) {
    for (; lost > 0; --lost)
      if (chance_.below(kReluctance) != 0) return false;
    return true;
  }

  const std::span<const int> sizes_;
  const Allowed& allowed_;
  std::vector<int> first_;  // number of each axis' first value among the values of all
  int values_ = 0;
  Chance chance_;
};

}  // namespace

std::vector<Row> pairwise_rows(std::span<const int> sizes, const Allowed& allowed) {
  return Reduction(sizes, allowed).fewer(Search(sizes, allowed).rows());
}

const std::vector<EmulatedAxis>& emulated_axes() {
  static const std::vector<EmulatedAxis> axes = {
      {"stages", {"1", "2", "4", "8"}},
      {"data", {"1", "2", "4"}},
      {"tensor", {"1", "2", "4"}},
      {"sequence", {"no", "yes"}},
      {"schedule", {"1f1b", "interleaved", "zb-h1"}},
      {"block", {"serial", "parallel", "parallel2"}},
      {"kv_heads", {"8", "2", "1"}},
      {"positions", {"rope", "learned", "sinusoidal", "t5_bias"}},
      {"norm", {"rmsnorm", "layernorm"}},
      {"norms", {"pre", "post", "sandwich+head", "output+full", "pre+head_per"}},
      {"tied", {"no", "yes"}},
      {"dropout", {"no", "yes"}},
      {"biases", {"no", "yes"}},
      {"gated", {"yes", "no"}},
      {"documents", {"no", "yes"}},
      {"recompute", {"none", "selective", "block"}},
      {"factors", {"no", "yes"}},
      {"dtype", {"fp64", "fp32"}},
      {"act", {"silu", "relu2", "limited", "xielu"}},
      {"ends", {"plain", "head", "tables"}},
      {"kinds", {"one", "two", "latents"}},
  };
  return axes;
}

std::string_view value_of(const Row& row, std::string_view axis) {
  const std::vector<EmulatedAxis>& axes = emulated_axes();
  const auto at = std::find_if(axes.begin(), axes.end(), [&](const EmulatedAxis& a) { return a.name == axis; });
  ASHLAR_CHECK(at != axes.end(), "no axis ", axis);
  return at->values.at(static_cast<size_t>(row.at(static_cast<size_t>(at - axes.begin()))));
}

bool emulated_row_allowed(const Row& row) {
  const auto count = [&](std::string_view axis) { return std::atoi(value_of(row, axis).data()); };
  const int stages = count("stages");
  if (stages * count("data") * count("tensor") > 8) return false;
  if (value_of(row, "sequence") == "yes" && count("tensor") == 1) return false;
  if (value_of(row, "block") != "serial" && !value_of(row, "norms").starts_with("pre")) return false;
  if (value_of(row, "kinds") == "latents") {
    const bool qk_norm = value_of(row, "norms").find('+') != std::string_view::npos;
    if (value_of(row, "positions") != "rope" || value_of(row, "kv_heads") != "8" || qk_norm) return false;
  }
  return value_of(row, "schedule") != "interleaved" || stages == 2 || stages == 4;  // of eight it needs 16 layers
}

}  // namespace ashlar::testing
