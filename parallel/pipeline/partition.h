#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/model/stage.h"

namespace ashlar::pipeline {

/// Costs of the layers, and the number of chunks. A cost is a finite number of flops for one micro-batch; any common
/// unit works, since only ratios matter. Costs of layers are above 0, costs of embedding and head 0 or more.
struct PartitionSpec {
  std::vector<double> layer_flops;  ///< one per layer
  double embedding_flops = 0;       ///< added to the first chunk
  double head_flops = 0;            ///< final norm, head and loss: added to the last chunk
  int64_t stages = 1;
  int64_t virtual_stages = 1;  ///< chunks per stage
  bool allow_empty = false;    ///< allows the first and the last chunk to have no layers if this improves the balance
};

/// The layers and costs of the chunks, in model order. model_chunk(stage, chunk, stages) in schedule.h gives the index
/// of a stage's chunk.
struct Partition {
  std::vector<model::StageRange> chunks;  ///< [stages * virtual_stages]
  std::vector<double> flops;              ///< flops of each chunk, including embedding and head
  double max_flops = 0;                   ///< cost of the slowest chunk, which limits the pipeline
};

/// Returns an error text with the valid sizes if there are fewer layers than chunks, else an empty string.
std::string chunks_problem(int64_t layers, int64_t stages, int64_t virtual_stages);

/// Partitions the layers into contiguous ranges such that the most expensive range costs as little as possible. Among
/// such partitions it takes the most even one (least sum of squares), then the one with fewer layers on early chunks,
/// which hold the most activations. With allow_empty, the first and the last chunk may be without layers, since they
/// also have the cost of the embedding or the head. An empty middle chunk would never lower the largest cost: it could
/// take a layer from a neighbour. Costs O(chunks * layers^2). Throws an input error for sizes below 1, and for fewer
/// layers than chunks; the text of the second error has the valid sizes.
Partition partition(const PartitionSpec& spec);

}  // namespace ashlar::pipeline
