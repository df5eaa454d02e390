#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device/memory_source.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/nccl_library.h"

/// Symmetric memory: buffers that NCCL's kernels on other ranks read and write directly, without copies through NCCL's
/// own. They lie in memory of ncclMemAlloc, which allocators take slabs from (core/device/memory_source.h).
/// Deterministic sums need the ring and have none. Source: NCCL user guide 2.28, "User Buffer Registration", window
/// registration.
namespace ashlar::comm {

/// What a rank brings to a window.
struct WindowOffer {
  int64_t bytes = 0;
  int64_t beyond = 0;     ///< bytes from the last multiple of nccl::kWindowAlignment to the first byte
  int64_t supported = 0;  ///< by its library: 1 or 0
};
/// Why these, one a rank, make no symmetric window; empty where they do. A collective's buffer must begin at the same
/// place of the window on every rank, so windows are equal.
std::string window_problem(std::span<const WindowOffer> offers);

/// The windows of one communicator.
class NcclWindows {
 public:
  /// `settle` waits until the communicator has done what it was called for. All outlive this object.
  NcclWindows(std::shared_ptr<NcclLibrary> library, Communicator& host, std::function<void(nccl::Comm)> settle)
      : library_(std::move(library)), host_(host), settle_(std::move(settle)) {}

  /// Called by all ranks, with nothing under way. Makes a window of the memory, or of none of the ranks' and says why
  /// not.
  std::string add(nccl::Comm comm, const std::string& name, const MutView& memory);
  /// Before the communicator is finalized.
  void remove_all(nccl::Comm comm, const std::string& name);
  size_t size() const { return windows_.size(); }

 private:
  void remove(nccl::Comm comm, const std::string& name, nccl::Window window);
  bool all(bool mine);

  std::shared_ptr<NcclLibrary> library_;
  Communicator& host_;
  std::function<void(nccl::Comm)> settle_;
  std::vector<nccl::Window> windows_;
};

/// Memory of ncclMemAlloc: what windows can be made of.
class NcclMemory final : public MemorySource {
 public:
  explicit NcclMemory(std::shared_ptr<NcclLibrary> library) : library_(std::move(library)) {}
  void* take(int64_t bytes) override;
  void give_back(void* memory) noexcept override;

 private:
  std::shared_ptr<NcclLibrary> library_;
};

}  // namespace ashlar::comm
