#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/device/memory_source.h"
#include "parallel/comm/nccl_comm.h"
#include "tests/stand_ins/virtual_gpu_extension.h"
#include "tests/support/deferred/deferred_backend.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {

/// The stand-in for NCCL of this build; empty without NCCL's header.
inline std::string stand_in_nccl() {
#ifdef ASHLAR_STAND_IN_NCCL
  return ASHLAR_STAND_IN_NCCL;
#else
  return "";
#endif
}

/// A device whose memory for weights and gradients may be of NCCL's, which windows can be made of. It is given back at
/// the end alone, when no window is left.
class WindowedBackend final : public DeferredBackend, public HasMemorySource {
 public:
  using DeferredBackend::DeferredBackend;

  Allocator& allocator(MemoryKind kind) override {
    const auto found = sourced_.find(kind);
    return found != sourced_.end() ? *found->second : DeferredBackend::allocator(kind);
  }
  void set_memory_source(std::shared_ptr<MemorySource> source, std::span<const MemoryKind> kinds) override {
    for (const MemoryKind kind : kinds) sourced_[kind] = std::make_unique<Sourced>(source);
  }

 private:
  class Sourced final : public Allocator {
   public:
    explicit Sourced(std::shared_ptr<MemorySource> source) : source_(std::move(source)) {}
    ~Sourced() override {
      for (void* const block : blocks_) source_->release(block);
    }
    Sourced(const Sourced&) = delete;
    Sourced& operator=(const Sourced&) = delete;
    void* allocate(int64_t bytes) override {
      bytes_ += bytes;
      return blocks_.emplace_back(source_->allocate(bytes));
    }
    void release(void* /*block*/) override {}
    int64_t used_bytes() const override { return bytes_; }
    int64_t high_water_bytes() const override { return bytes_; }
    int64_t num_system_calls() const override { return static_cast<int64_t>(blocks_.size()); }

   private:
    std::shared_ptr<MemorySource> source_;
    std::vector<void*> blocks_;
    int64_t bytes_ = 0;
  };

  std::map<MemoryKind, std::unique_ptr<Sourced>> sourced_;
};

/// A communicator over it, for the ranks of `host`, which are those of the world.
inline std::unique_ptr<comm::NcclComm> make_nccl(comm::Communicator& host, DeferredBackend& device,
                                                 const comm::NcclOptions& options = {.setup_seconds = 30}) {
  setenv("ASHLAR_NCCL", stand_in_nccl().c_str(), 0);
  take_work_of_stand_ins(device.gpu());
  return comm::NcclComm::make(host, bootstrap().control(), device, options);
}

}  // namespace ashlar::testing
