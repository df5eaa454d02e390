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
  int64_t step = -1;  ///< -1: an import
  std::string config_toml;
  io::Metadata metadata;                       ///< metadata of the checkpoint
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null for an import without one
  std::unique_ptr<training::RunDevice> device;
  std::function<void()> abort;  ///< the function returned by RunDevice::connect
  std::unique_ptr<mesh::Mesh> mesh;
  std::unique_ptr<training::Engine> engine;
};

/// The mesh of a model that is not trained.
struct InferenceMesh {
  int64_t tensor = 0, pipeline = 0;  ///< 0: as trained, or what fits if the ranks do not allow that
  bool one_replica = false;          ///< all ranks must hold parts of one model
};

/// The mesh for `ranks` ranks: the requested sizes, else `trained` when it divides the ranks. Otherwise, for one
/// replica, the most tensor ranks that the model allows and stages for the rest; for several, whole models. Input error
/// that names valid sizes.
mesh::MeshShape inference_mesh(const model::ModelConfig& model, int64_t ranks, const mesh::MeshShape& trained,
                               const InferenceMesh& wish);

struct LoadOptions {
  std::filesystem::path path;        ///< a checkpoint, or a run directory (its newest valid checkpoint)
  std::optional<std::string> dtype;  ///< "bf16", "fp32", "fp64"; absent: that of the run, fp32 for an import
  int64_t threads = 0;               ///< 0 = all cores
  /// Absent: the device of the run, or the CPU with a warning if that is not available; cpu for an import.
  std::optional<config::Device> device;
  int64_t positions = 0;  ///< rotary tables cover at least these positions and the run's sequence length
  InferenceMesh mesh;
};

/// Called by all ranks. Input error for an invalid path, dtype or model, and for a requested device that is not
/// available; damaged-data error for a damaged checkpoint. `log` must outlive the model.
LoadedModel load_model(const LoadOptions& options, comm::Bootstrap& bootstrap, Log& log);

}  // namespace ashlar::inference
