#pragma once

#include <vector>

namespace ashlar::comm {

/// A rank's position in the binomial tree over ranks 0 .. size - 1 with root 0. Its descendants are ranks rank + 1 ..
/// end - 1. No rank has more than ceil(log2 size) children or a greater depth.
struct RankTree {
  int parent = -1;            ///< -1: the root
  std::vector<int> children;  ///< ascending; the subtree of each has the ranks up to the next child
  int end = 0;

  /// The position of a rank (Bug unless 0 <= rank < size).
  static RankTree of(int rank, int size);
  /// True if `rank` is in the subtree of `child`.
  bool below(int child, int rank) const;
};

}  // namespace ashlar::comm
