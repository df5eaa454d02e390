#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/model/stage.h"

namespace ashlar::pipeline {

/// Costs of the layers, and the number of chunks. Costs are finite flops of one micro-batch; any common unit works,
/// since only ratios matter. They are positive for layers, and not negative for embedding and head.
struct PartitionSpec {
  std::vector<double> layer_flops;  ///< one per layer
  double embedding_flops = 0;       ///< added to the first chunk
  double head_flops = 0;            ///< final norm, head and loss: added to the last chunk
  int64_t stages = 1;
  int64_t virtual_stages = 1;  ///< chunks per stage
  bool allow_empty = false;    ///< the first and the last chunk may have no layer if that balances better
};

/// Chunk k in model order; `model_chunk(stage, chunk, stages)` of schedule.h maps stages to chunks.
struct Partition {
  std::vector<model::StageRange> chunks;  ///< [stages * virtual_stages]
  std::vector<double> flops;              ///< flops of each chunk, including embedding and head
  double max_flops = 0;                   ///< cost of the slowest chunk, which limits the pipeline
};

/// Error text if there are fewer layers than chunks, with the sizes that fit; empty if there are enough.
std::string chunks_problem(int64_t layers, int64_t stages, int64_t virtual_stages);

/// Partitions the layers into contiguous ranges such that the most expensive range costs as little as possible. Among
/// such partitions it takes the most even one (least sum of squares), then the one with fewer layers on early chunks,
/// which hold the most activations. Only the first or last chunk can gain by having no layer, since a middle chunk
/// could take layers from its neighbours. Costs O(chunks * layers^2). Input error when there are fewer layers than
/// chunks; it names valid sizes.
Partition partition(const PartitionSpec& spec);

}  // namespace ashlar::pipeline
