#pragma once

#include <vector>

namespace ashlar::comm {

/// A rank's position in the binomial tree over ranks 0 .. size - 1 with root 0. The descendants of the rank are ranks
/// rank + 1 to end - 1. The depth of the tree, and the number of children of each rank, are at most ceil(log2 size).
struct RankTree {
  int parent = -1;            ///< -1 for the root
  std::vector<int> children;  ///< ascending; the subtree of a child ends before the next child
  int end = 0;

  /// Returns the position of a rank. Throws Bug unless 0 <= rank < size.
  static RankTree of(int rank, int size);
  /// True if `rank` is in the subtree of `child`.
  bool below(int child, int rank) const;
};

}  // namespace ashlar::comm
