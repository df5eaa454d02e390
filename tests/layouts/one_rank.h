#pragma once

#include <string>

#include "core/autograd/ctx.h"
#include "core/optim/optimizer.h"
#include "parallel/comm/communicator.h"
#include "parallel/mesh/mesh.h"
#include "parallel/model/model_config.h"
#include "parallel/pipeline/schedule.h"

namespace ashlar::testing {

/// A model, a batch of random tokens and how ranks divide them.
struct LayoutCase {
  model::ModelConfig config;
  Recompute recompute = Recompute::kNone;
  bool documents = false;  ///< attention stays within documents that begin at random places
  DType dtype = DType::kFloat32;
  int64_t B = 2, T = 8;  ///< of a micro-batch
  mesh::MeshShape mesh;
  bool sequence_parallel = false;
  pipeline::PipelineSchedule schedule = pipeline::PipelineSchedule::k1F1B;
  int64_t virtual_stages = 1;
  int64_t micro_batches = 1;  ///< of a replica
  int64_t bucket_elems = 700;
  optim::OptimizerOptions optimizer;
  double lr = 0.01;
  double clip = 0.3;          ///< as a share of the gradient norm
  int64_t further_steps = 0;  ///< of training, after the first update
  uint64_t seed = 7;          ///< of weights and tokens
  /// Of the layout; the one rank is always on the CPU. "nccl": the CPU's kernels behind streams that are really
  /// asynchronous, whose ranks exchange buffers over the stand-in for NCCL; "nccl windows": with symmetric memory.
  std::string device = "cpu";
};

/// Expects the layout on `ranks` (all of mesh.ranks()) to compute what one rank does that runs the whole model
/// micro-batch after micro-batch: losses and statistics, every gradient, the norm, a clipped update, the loss behind it
/// and those of further steps. To the bit where only layers of the CPU are divided; else gradients before clipping
/// within 1e-11 in fp64 and 2e-5 in fp32 (on the emulated device, and in bf16, within three times what the dtype makes
/// of the model's gradients on the CPU, where that is more), what follows from them within what that allows; in bf16
/// only the gradients. Experts are chosen alike; in bf16, and in fp32 where two selection values are within 1e-5, the
/// layout is given the choices of one rank.
void expect_numbers_of_one_rank(comm::Communicator& ranks, const LayoutCase& c);

}  // namespace ashlar::testing
