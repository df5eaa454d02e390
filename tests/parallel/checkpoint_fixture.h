#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/base/error.h"
#include "core/io/safetensors.h"
#include "core/nn/parameter.h"
#include "core/optim/optimizer.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/manifest.h"
#include "parallel/checkpoint/save.h"
#include "parallel/comm/control_plane.h"
#include "parallel/comm/self_comm.h"
#include "tests/support/damage.h"
#include "tests/support/file_bytes.h"
#include "tests/support/thrown.h"

namespace ashlar::checkpoint {

// The searches of one rank.
std::optional<Found> newest_good(const std::filesystem::path& run_dir, Log& log);
std::filesystem::path resolve(const std::filesystem::path& path, Log& log);

}  // namespace ashlar::checkpoint

namespace ashlar::testing {

/// A store with every kind of tensor (padded table, fused matrix, vectors) and its optimizer, on one CPU thread.
class CheckpointModel {
 public:
  struct Size {
    int64_t width = 12, vocab = 37, padded = 64, layers = 2;
  };
  explicit CheckpointModel(DType dtype, bool training = true);
  CheckpointModel(DType dtype, bool training, const Size& size);
  CheckpointModel(DType dtype, const std::vector<nn::ShardedTensor>& tensors);  ///< one parameter a tensor

  const Ctx& ctx() const { return *ctx_; }
  nn::ParameterStore& store() { return store_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  comm::ControlPlane& ranks() { return ranks_; }

  /// Master (or values), m and v of every tensor from raw random bits that are finite: denormals and -0 included.
  void randomize(uint64_t seed);
  /// The same, from finite numbers, in the values and (when training) published from the master.
  void randomize_finite(uint64_t seed);

  /// A tensor's bytes in a flat buffer.
  std::string bytes_of(const Tensor& buffer, const std::string& name) const;
  /// A whole flat buffer's bytes: tensors, padding and gaps.
  std::string bytes_of(const Tensor& buffer) const;
  /// Master, both moments and values of the whole flat buffers.
  std::string all_bytes() const;

 private:
  void build(DType dtype, bool training);
  void set(const Tensor& buffer, const nn::ParameterStore::ShardedTensorRef& ref, const std::string& bytes) const;

  comm::SelfComm self_{"ranks"};
  comm::ControlPlane ranks_{self_, "ranks"};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ctx> ctx_;
  nn::ParameterStore store_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

checkpoint::TrainingState state_at(int64_t step);  ///< every field different and non-zero

/// Bytes [offset, offset + bytes.size()) of a file replaced, in place.
void patch(const std::string& path, int64_t offset, const std::string& bytes);
/// A manifest's text with the checksum in its first line made right again, by zlib directly.
std::string resealed(std::string manifest);

/// Runs `action` in a forked child, which then exits with the code of the Error it threw (0: none), writing the
/// message to `message_file`. Returns the exit status; the child must not have needed a signal.
int exit_code_of_child(const std::string& message_file, const std::function<void()>& action);

/// Saves this step below `run`, which keeps the newest checkpoint alone.
checkpoint::Saved save_step(CheckpointModel& model, const std::filesystem::path& run, int64_t step);

}  // namespace ashlar::testing
