#pragma once

#include <vector>

namespace ashlar::comm {

/// A rank's place in the binomial tree over ranks 0 .. size - 1 with root 0. The ranks below a rank are its followers:
/// rank + 1 .. end - 1. No rank has more than ceil(log2 size) children, none is further than that from the root.
struct RankTree {
  int parent = -1;            ///< -1: the root
  std::vector<int> children;  ///< ascending; below each of them are the ranks up to the next one
  int end = 0;

  /// Of a rank (Bug unless 0 <= rank < size).
  static RankTree of(int rank, int size);
  /// Whether `rank` is `child` or below it.
  bool below(int child, int rank) const;
};

}  // namespace ashlar::comm
