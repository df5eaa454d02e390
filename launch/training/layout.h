#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/model/model_config.h"
#include "parallel/pipeline/partition.h"
#include "parallel/pipeline/schedule.h"

namespace ashlar::training {

struct CutOptions {
  int64_t sequence_length = 0;  ///< tokens; what attention costs beside the products depends on it
  int64_t stages = 1;
  int64_t virtual_stages = 1;
};

/// The chunks of a model on a pipeline, by the flops of its layers and its ends. Input error when there are fewer
/// layers than chunks.
pipeline::Partition partition_of(const model::ModelConfig& model, const CutOptions& options);

/// What a picture of the layout tells.
struct Layout {
  const model::ModelConfig& model;
  const mesh::MeshShape& mesh;
  const pipeline::Partition& cut;
  const pipeline::ScheduleSpec& schedule;
  bool sequence_parallel = false;
  std::vector<std::string> hosts;  ///< of each rank
};

/// Which rank holds which layers and slices, a line each row of stages, and the bubble that the schedule leaves:
///
///   layout: 4 ranks on 1 host = pipeline 2 x data 1 x tensor 2; 1f1b, 8 micro-batches: 11.1% of the time is bubble
///                                    tensor 0: heads 0-1   tensor 1: heads 2-3
///   stage 0  embedding, layers 0-1   rank 0                rank 1
///   stage 1  layers 2-3, head        rank 2                rank 3
///
/// One rank has no picture. Hosts are named where there are several.
std::vector<std::string> layout_picture(const Layout& layout);

}  // namespace ashlar::training
