#pragma once

#include "launch/config/run_config.h"
#include "launch/training/engine.h"

namespace ashlar::training {

/// What a configuration says of the mesh, and to the engine that trains on it.
mesh::MeshShape shape_of(const config::MeshSection& mesh);
EngineOptions engine_options(const config::RunConfig& config);

}  // namespace ashlar::training
