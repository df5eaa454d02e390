#include "parallel/comm/rank_tree.h"

#include <algorithm>

#include "core/base/error.h"

namespace ashlar::comm {

RankTree RankTree::of(int rank, int size) {
  ASHLAR_CHECK(rank >= 0 && rank < size, "rank ", rank, " is not below the size ", size);
  RankTree tree{.end = size};
  const int lowest_bit = rank & -rank;
  if (rank > 0) {
    tree.parent = rank - lowest_bit;
    tree.end = static_cast<int>(std::min<int64_t>(int64_t{rank} + lowest_bit, size));
  }
  for (int64_t distance = 1; rank + distance < tree.end; distance *= 2) {
    tree.children.push_back(static_cast<int>(rank + distance));
  }
  return tree;
}

bool RankTree::below(int child, int rank) const {
  const auto next = std::upper_bound(children.begin(), children.end(), child);
  return rank >= child && rank < (next == children.end() ? end : *next);
}

}  // namespace ashlar::comm
