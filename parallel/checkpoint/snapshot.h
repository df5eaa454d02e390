#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/device/device_facts.h"
#include "core/io/direct_file.h"
#include "core/nn/parameter.h"
#include "core/optim/optimizer.h"
#include "parallel/checkpoint/background_job.h"
#include "parallel/checkpoint/writer.h"

namespace ashlar::checkpoint {

/// The data that one rank saves: the tensors and buffers of which it is the main replica, in the layout of its files.
/// With an optimizer these are this rank's shards of the master weights and state tensors (AdamW: NAME.m, NAME.v);
/// without an optimizer, the params of the store in their storage dtype.
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

  /// Number of bytes of host memory that `copy` needs.
  static int64_t bytes_of(const Source& source);
  /// Allocates the memory for `copy` and touches it, so that the first copy is not slower than later ones.
  void reserve(const Source& source);
  int64_t reserved_bytes() const { return reserved_; }
  /// False if the memory of a device is copied to memory that the system did not lock, so that `copy` waits.
  bool copies_beside_host() const { return !unlocked_; }

  /// Queues copies of all data to host memory on a separate stream. They start after the work that is queued on
  /// source.ctx.stream so far. Code that changes the state must wait for the returned event.
  Event& copy(const Source& source);
  /// Refers to the state instead of copying it. The state must not change until `write` has returned.
  void refer(const Source& source);
  bool ready() { return !copied_ || copied_->reached(); }  ///< true if `write` may be called; does not wait
  void wait();                                             ///< waits on the host until ready() is true

  /// Writes this rank's files durably and returns the list of them. Writes no file if the rank saves no tensor. Any
  /// thread may call it once ready() is true. Throws the errors of io::AtomicFile, and Interrupted when cancelled.
  Manifest write(const std::filesystem::path& directory, const BackgroundJob::Cancelled& cancelled) const;
  class Interrupted {};

 private:
  struct File {
    Group group;
    std::string name;
    std::vector<StoredBlock> blocks;
    std::vector<Tensor> sources;  ///< one flat tensor per block, with the values of the block
  };
  static std::vector<File> files_of(const Source& source);
  void free_memory();

  std::vector<File> files_;
  const Ctx* ctx_ = nullptr;  ///< context in which to read the sources; null if they are copied to memory_
  io::DirectMemory memory_;
  int64_t reserved_ = 0;
  DeviceFacts* locked_by_ = nullptr;  ///< the device that locked memory_; null: none
  bool unlocked_ = false;             ///< a device could not lock it
  // Created by the first copy, and used by all copies:
  std::unique_ptr<Stream> stream_;
  // current_ is recorded on the caller's stream before the copies, copied_ on stream_ after them.
  std::unique_ptr<Event> current_, copied_;
};

}  // namespace ashlar::checkpoint
