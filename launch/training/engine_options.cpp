#include "launch/training/engine_options.h"

namespace ashlar::training {

mesh::MeshShape shape_of(const config::MeshSection& mesh) {
  return {{Axis::kPipeline, mesh.pipeline},
          {Axis::kReplica, mesh.data / mesh.expert},
          {Axis::kExpert, mesh.expert},
          {Axis::kTensor, mesh.tensor}};
}

EngineOptions engine_options(const config::RunConfig& c) {
  optim::OptimizerOptions optimizer = c.optimizer.rule;
  optimizer.rounding_seed = static_cast<uint32_t>(c.run.seed);
  return {.model = c.model,
          .dtype = c.run.dtype,
          .optimizer = optimizer,
          .clip = c.optimizer.clip,
          .recompute = c.train.recompute,
          .seed = static_cast<uint64_t>(c.run.seed),
          .sequence_length = c.train.sequence_length,
          .sequence_parallel = c.mesh.sequence_parallel,
          .schedule = c.mesh.schedule,
          .virtual_stages = c.mesh.virtual_stages};
}

}  // namespace ashlar::training
