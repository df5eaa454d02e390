#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/io/safetensors.h"
#include "launch/hf/hf_model.h"
#include "launch/training/engine.h"

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

/// Reads tensors named as in a model's file (with `prefix` before each name) as ours: `config_dir` says which class.
NamedValues read_as_model(const std::filesystem::path& config_dir, const io::SafetensorsReader& file,
                          const std::string& prefix);

/// An engine with the given weights on the CPU backend, `threads` threads.
class LoadedEngine {
 public:
  LoadedEngine(const model::ModelConfig& config, DType dtype, const NamedValues& weights,
               const optim::AdamWOptions& optimizer, double clip, int64_t sequence_length);

  training::Engine& engine() { return *engine_; }
  /// A batch of B samples of T tokens; targets of -1 are not counted.
  training::DeviceBatch batch(const std::vector<int32_t>& ids, const std::vector<int32_t>& targets, int64_t B,
                              int64_t T);
  NamedValues gradients();
  NamedValues weights();
  std::vector<double> logits(const training::DeviceBatch& batch);

 private:
  NamedValues read(const Tensor& slab);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<training::Engine> engine_;
};

double norm(const std::vector<double>& x);
double distance(const std::vector<double>& a, const std::vector<double>& b);  ///< Frobenius norm of a - b

}  // namespace ashlar::testing
