#pragma once

#include "launch/config/run_config.h"
#include "launch/training/engine.h"

namespace ashlar::training {

/// Mesh shape and engine options from a configuration.
mesh::MeshShape shape_of(const config::MeshSection& mesh);
EngineOptions engine_options(const config::RunConfig& config);

}  // namespace ashlar::training
