#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/io/safetensors.h"
#include "launch/hf/hf_model.h"
#include "launch/training/engine.h"
#include "tests/support/routed_backend.h"

namespace ashlar::testing {

/// Our tensors by global name, as doubles.
using NamedValues = std::map<std::string, std::vector<double>>;

/// The folder that tests read: $ASHLAR_GOLDEN, else the copy in the tree.
std::filesystem::path golden_root();
/// Names of the folders below `dir` that hold `marker`, sorted.
std::vector<std::string> folders_with(const std::filesystem::path& dir, const std::string& marker);

/// A tensor of a safetensors file as doubles or integers.
std::vector<double> read_doubles(const io::SafetensorsReader& file, const std::string& name);
std::vector<int32_t> read_integers(const io::SafetensorsReader& file, const std::string& name);

/// All tensors of an import by our names.
NamedValues read_model(hf::ImportedModel& model);

/// Names of the tensors of config_dir's model of which `file` has none with `prefix`: buffers of a class have no
/// gradient.
std::vector<std::string> absent_tensors(const std::filesystem::path& config_dir, const io::SafetensorsReader& file,
                                        const std::string& prefix);
/// Reads tensors named as in a model's file (with `prefix` before each name) as ours: `config_dir` says which class.
/// Absent ones are zeros.
NamedValues read_as_model(const std::filesystem::path& config_dir, const io::SafetensorsReader& file,
                          const std::string& prefix);

/// A folder, and the layout of the ranks that run it.
struct Setting {
  std::string folder;
  mesh::MeshShape layout;

  std::string name() const;  ///< "gpt2", or "gpt2_2x1x1": tensor x pipeline x data (x expert)
};

/// Folders on the layouts of as many ranks as there are: all on each of $ASHLAR_GOLDEN_LAYOUTS ("1x1x1 2x1x1 ..."),
/// else all on one rank, on pipeline 2 and on tensor 2, but those whose heads two ranks cannot share on tensor 5 where
/// five can, and those with experts on expert 2. `config_root` holds their config.json.
std::vector<Setting> settings(const std::filesystem::path& config_root, const std::vector<std::string>& folders);

/// Input of a step: B samples of T tokens; targets of -1 are not counted.
struct Tokens {
  std::span<const int32_t> ids, targets;  ///< [B * T]
  int64_t B, T;
};

struct LoadedEngineOptions {
  model::ModelConfig model;
  mesh::MeshShape layout;
  DType dtype;
  optim::OptimizerOptions optimizer;
  double clip = 0;
  int64_t sequence_length;
};

/// An engine with the given weights on the CPU backend, one thread a rank. All ranks call everything and get the whole:
/// a replica takes its share of the samples.
class LoadedEngine {
 public:
  /// Why the model cannot run on the layout; empty when it can. The vocabulary is padded.
  static std::string problem(const model::ModelConfig& config, const mesh::MeshShape& layout);

  LoadedEngine(const LoadedEngineOptions& options, const NamedValues& weights);

  training::Engine& engine() { return *engine_; }
  RoutedBackend& routes() { return routes_; }
  training::DeviceBatch batch(const Tokens& tokens);
  NamedValues gradients();
  NamedValues weights();
  /// [B * T, vocab_size] of all replicas, then of what fills up the last one.
  std::vector<double> logits(const training::DeviceBatch& batch);
  /// The residual stream [B * T, d_model] behind a number of blocks; on one rank only.
  std::vector<double> stream(const training::DeviceBatch& batch, int64_t layers);

 private:
  NamedValues gather(const nn::FlatTensor& buffer);

  std::unique_ptr<Backend> backend_;
  RoutedBackend routes_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<mesh::Mesh> mesh_;
  std::unique_ptr<training::Engine> engine_;
};

double norm(const std::vector<double>& x);
double distance(const std::vector<double>& a, const std::vector<double>& b);  ///< Frobenius norm of a - b

}  // namespace ashlar::testing
