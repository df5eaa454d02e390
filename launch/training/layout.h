#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/model/model_config.h"
#include "parallel/pipeline/partition.h"
#include "parallel/pipeline/schedule.h"

namespace ashlar::training {

struct PartitionOptions {
  int64_t sequence_length = 0;  ///< tokens; determines the cost of attention relative to the matrix products
  int64_t stages = 1;
  int64_t virtual_stages = 1;
};

/// Divides a model's layers into the chunks of a pipeline, balanced by the flops of layers, embedding and head. Input
/// error when there are fewer layers than chunks.
pipeline::Partition partition_of(const model::ModelConfig& model, const PartitionOptions& options);

/// Input of layout_picture.
struct Layout {
  const model::ModelConfig& model;
  const mesh::MeshShape& mesh;
  const pipeline::Partition& partition;
  const pipeline::ScheduleSpec& schedule;
  bool sequence_parallel = false;
  std::vector<std::string> hosts;  ///< host name of each rank
};

/// "pipeline 2 x data 4 (experts over 2) x tensor 2"
std::string mesh_text(const mesh::MeshShape& mesh);

/// Describes the layers and slices of each rank, one line per stage and replica, and the bubble of the schedule:
///   layout: 4 ranks on 1 host = pipeline 2 x data 1 x tensor 2; 1f1b, 8 micro-batches: 11.1% of the time is bubble
///                                    tensor 0: heads 0-1   tensor 1: heads 2-3
///   stage 0  embedding, layers 0-1   rank 0                rank 1
///   stage 1  layers 2-3, head        rank 2                rank 3
///
/// With an expert axis, the line of a replica also names its experts. Empty for one rank. Hosts are named if there are
/// several.
std::vector<std::string> layout_picture(const Layout& layout);

}  // namespace ashlar::training
