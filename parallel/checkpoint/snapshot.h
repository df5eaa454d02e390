#pragma once

#include <cstddef>
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

/// What one rank saves: the tensors of which it is the main replica, as the files that hold them. With an optimizer its
/// owned master weights and state tensors (AdamW: NAME.m, NAME.v), without one the store's values in their storage
/// dtype.
class Snapshot {
 public:
  Snapshot() = default;
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  ~Snapshot();  ///< waits for a copy under way

  struct Source {
    const Ctx& ctx;
    const nn::ParameterStore& store;
    const optim::Optimizer* optimizer = nullptr;
    int rank = 0;
  };

  /// The bytes that `copy` takes of host memory.
  static int64_t bytes_of(const Source& source);
  /// Takes that memory now, touched, so that the first copy costs no more than the others.
  void reserve(const Source& source);
  int64_t reserved_bytes() const { return reserved_; }

  /// Queues copies of everything to host memory, behind the work that source.ctx.stream has been given, on a stream of
  /// its own: the caller's goes on meanwhile. What changes the state must wait for the event that is returned.
  Event& copy(const Source& source);
  /// Remembers where everything is: the state must stay as it is until `write` has returned.
  void refer(const Source& source);
  bool ready() { return !copied_ || copied_->reached(); }  ///< to be written; asks, without waiting
  void wait();                                             ///< the host waits until it is ready

  /// Writes this rank's files durably and lists them: no file for nothing. On any thread, when ready; reads only the
  /// snapshot. Errors as io::AtomicFile. Throws Interrupted when cancelled.
  Manifest write(const std::filesystem::path& directory, const BackgroundJob::Cancelled& cancelled) const;
  class Interrupted {};

 private:
  struct File {
    Group group;
    std::string name;
    std::vector<StoredBlock> blocks;
    std::vector<Tensor> sources;  ///< of the same block, flat
  };
  static std::vector<File> files_of(const Source& source);

  std::vector<File> files_;
  const Ctx* ctx_ = nullptr;  ///< to read the sources with; null: they have been copied to memory_
  io::DirectMemory memory_;
  int64_t reserved_ = 0;
  // Of copies, from the first one on:
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> current_, copied_;  ///< the state is that of the step; it is in memory_
};

}  // namespace ashlar::checkpoint
