#pragma once

#include <cstdint>
#include <vector>

#include "parallel/model/stage.h"

namespace ashlar::pipeline {

/// What the layers cost, and how many chunks they are cut into. Costs are flops of one micro-batch (any common unit
/// serves: only ratios matter), finite; a layer's is positive, the ends' are not negative.
struct PartitionSpec {
  std::vector<double> layer_flops;  ///< one a layer
  double embedding_flops = 0;       ///< added to the first chunk
  double head_flops = 0;            ///< final norm, head and loss: added to the last chunk
  int64_t stages = 1;
  int64_t virtual_stages = 1;  ///< chunks a stage
  bool allow_empty = false;    ///< the first and the last chunk may be left without a layer where that balances better
};

/// Chunk k in the order of the model; `model_chunk(stage, chunk, stages)` of schedule.h tells whose it is.
struct Partition {
  std::vector<model::StageRange> chunks;  ///< [stages * virtual_stages]
  std::vector<double> flops;              ///< of each chunk, ends included
  double max_flops = 0;                   ///< the slowest chunk: what a pipeline's clock runs at
};

/// Cuts the layers into contiguous ranges whose costliest is as cheap as possible; among such cuts the most even one
/// (least sum of squares), then the one with fewer layers on early chunks, which hold the most activations.
/// Only an end can gain by having no layer: in the middle the neighbours' layers could be spread over one chunk more.
/// O(chunks * layers^2). Input error when there are fewer layers than chunks; it names the sizes that fit.
Partition partition(const PartitionSpec& spec);

}  // namespace ashlar::pipeline
