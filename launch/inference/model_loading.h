#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/log.h"
#include "core/io/safetensors.h"
#include "data/tokenizer/tokenizer.h"
#include "launch/training/engine.h"
#include "launch/training/run_device.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::inference {

/// A model read from a checkpoint, ready to evaluate and generate.
struct LoadedModel {
  std::filesystem::path checkpoint;
  int64_t step = -1;  ///< -1: an import, which has none
  std::string config_toml;
  io::Metadata metadata;                       ///< of the checkpoint: what an import says of itself
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null for an import without one
  std::unique_ptr<training::RunDevice> device;
  std::function<void()> abort;  ///< RunDevice::connect's
  std::unique_ptr<mesh::Mesh> mesh;
  std::unique_ptr<training::Engine> engine;
};

/// How the ranks divide a model that does not train.
struct InferenceMesh {
  int64_t tensor = 0, pipeline = 0;  ///< 0: as trained where the ranks allow it, else what fits
  bool one_replica = false;          ///< all ranks must hold parts of one model
};

/// The mesh of `ranks` ranks: what is asked for, else `trained` when it divides them, else (one replica) the most
/// tensor ranks that the model allows and stages for the rest, or (many) whole models. Input error naming what would
/// do.
mesh::MeshShape inference_mesh(const model::ModelConfig& model, int64_t ranks, const mesh::MeshShape& trained,
                               const InferenceMesh& wish);

struct LoadOptions {
  std::filesystem::path path;        ///< a checkpoint, or a run directory (its newest good checkpoint)
  std::optional<std::string> dtype;  ///< "bf16", "fp32", "fp64"; absent: as the run had it, fp32 for an import
  int64_t threads = 0;               ///< 0 = all cores
  /// Absent: as the run was trained, and the CPU with a warning where that device cannot be used; cpu for an import.
  std::optional<config::Device> device;
  int64_t positions = 0;  ///< rotary tables cover at least so many, and the run's sequence length
  InferenceMesh mesh;
};

/// Called by all ranks. Input error for another path, dtype or model, and for a device that was asked for and cannot be
/// used; damaged error for a damaged checkpoint. `log` must outlive the model.
LoadedModel load_model(const LoadOptions& options, comm::Bootstrap& bootstrap, Log& log);

}  // namespace ashlar::inference
