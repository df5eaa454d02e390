#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/io/direct_file.h"
#include "core/nn/parameter.h"
#include "core/optim/optimizer.h"
#include "parallel/checkpoint/background_job.h"
#include "parallel/checkpoint/writer.h"

namespace ashlar::checkpoint {

/// The data that one rank saves: the tensors of which it is the main replica, in the layout of its files. With an
/// optimizer these are the owned master weights and state tensors (AdamW: NAME.m, NAME.v); without one, the values of
/// the store in their storage dtype.
class Snapshot {
 public:
  Snapshot() = default;
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  ~Snapshot();  ///< waits for a running copy

  struct Source {
    const Ctx& ctx;
    const nn::ParameterStore& store;
    const optim::Optimizer* optimizer = nullptr;
    int rank = 0;
  };

  /// Bytes of host memory that `copy` needs.
  static int64_t bytes_of(const Source& source);
  /// Allocates the memory for `copy` and touches it, so that the first copy is not slower than later ones.
  void reserve(const Source& source);
  int64_t reserved_bytes() const { return reserved_; }

  /// Queues copies of everything to host memory, after the work queued on source.ctx.stream, on a separate stream. Code
  /// that changes the state must wait for the returned event.
  Event& copy(const Source& source);
  /// Refers to the state without a copy. The state must not change until `write` has returned.
  void refer(const Source& source);
  bool ready() { return !copied_ || copied_->reached(); }  ///< ready to be written; does not wait
  void wait();                                             ///< the host waits until ready

  /// Writes this rank's files durably and lists them; no file if there is nothing to write. On any thread, when ready;
  /// reads only the snapshot. Errors as io::AtomicFile. Throws Interrupted when cancelled.
  Manifest write(const std::filesystem::path& directory, const BackgroundJob::Cancelled& cancelled) const;
  class Interrupted {};

 private:
  struct File {
    Group group;
    std::string name;
    std::vector<StoredBlock> blocks;
    std::vector<Tensor> sources;  ///< tensors that hold the values of `blocks`, in the same order, flat
  };
  static std::vector<File> files_of(const Source& source);

  std::vector<File> files_;
  const Ctx* ctx_ = nullptr;  ///< for reading the sources; null: they are copied to memory_
  io::DirectMemory memory_;
  int64_t reserved_ = 0;
  // Used for copies; created by the first copy:
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> current_, copied_;  ///< the state is complete; it is copied to memory_
};

}  // namespace ashlar::checkpoint
