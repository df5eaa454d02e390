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
  int64_t step = -1;  ///< training step of the checkpoint; -1: an import
  std::string config_toml;
  io::Metadata metadata;                       ///< metadata of the checkpoint
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null for an import without one
  std::unique_ptr<training::RunDevice> device;
  std::function<void()> abort;  ///< aborts device communication; returned by RunDevice::connect
  std::unique_ptr<mesh::Mesh> mesh;
  std::unique_ptr<training::Engine> engine;
};

/// The mesh that the user requests for inference.
struct InferenceMesh {
  int64_t tensor = 0, pipeline = 0, expert = 0;  ///< 0: not requested; inference_mesh() chooses the size
  bool one_replica = false;                      ///< all ranks must process the same samples
};

/// Returns the mesh for `ranks` ranks: the first of the following meshes that has the requested sizes and fits the
/// model and the number of ranks.
/// 1. the tensor and pipeline sizes of `trained`, the training mesh
/// 2. unless one_replica is set, the whole model on each rank
/// 3. as many tensor ranks as possible, with as few pipeline stages as possible
/// Of the ranks that are then left, as many divide the experts as in training, if that fits; with one_replica, all.
/// If none fits, throws an input error that says what was expected.
mesh::MeshShape inference_mesh(const model::ModelConfig& model, int64_t ranks, const mesh::MeshShape& trained,
                               const InferenceMesh& wish);

struct LoadOptions {
  std::filesystem::path path;        ///< a checkpoint, or a run directory (its newest valid checkpoint)
  std::optional<std::string> dtype;  ///< "bf16", "fp32", "fp64"; absent: run.dtype, or fp32 for an import
  int64_t threads = 0;               ///< 0 = all cores
  /// Absent: the device of the run, or the CPU with a warning if that device is not available; the CPU for an import.
  std::optional<config::Device> device;
  int64_t positions = 0;  ///< number of positions in the rotary tables; at least the run's sequence length
  InferenceMesh mesh;
};

/// Called by all ranks. Throws an input error for an invalid path, dtype or model and for a requested device that is
/// not available, and a damaged-data error for a damaged checkpoint. `log` must outlive the model.
LoadedModel load_model(const LoadOptions& options, comm::Bootstrap& bootstrap, Log& log);

}  // namespace ashlar::inference
