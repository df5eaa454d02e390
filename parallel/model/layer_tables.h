#pragma once

#include <vector>

#include "core/ops/rope.h"
#include "parallel/model/rope_frequencies.h"

namespace ashlar::model {

/// The rotary tables of the layers. Layers with equal rotation share a table.
class LayerTables {
 public:
  /// Creates the tables of layers [first, last) for positions below `positions`.
  void make(const Ctx& ctx, const ModelConfig& config, int64_t first, int64_t last, int64_t positions);
  /// Returns the table of a layer; null if the layer has neither rotation nor query temperatures.
  const ops::RopeTables* of(int64_t layer) const;
  int64_t positions() const { return positions_; }

 private:
  struct Kind {
    LayerRope rope;
    ops::RopeTables tables;
  };
  std::vector<Kind> kinds_;
  std::vector<int64_t> kind_of_;  ///< index of the table of each layer; -1: none
  int64_t positions_ = 0;
};

}  // namespace ashlar::model
