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

/// Symmetric memory: buffers that NCCL's kernels on other ranks access directly, without copies through NCCL's buffers.
/// ncclMemAlloc allocates their memory, in slabs for the allocators (core/device/memory_source.h). Deterministic sums
/// use NCCL's ring algorithm and no windows. Source: NCCL user guide 2.28, "User Buffer Registration", window
/// registration.
namespace ashlar::comm {

/// The buffer that a rank offers for a window.
struct WindowOffer {
  int64_t bytes = 0;
  int64_t beyond = 0;     ///< offset of the first byte from a multiple of nccl::kWindowAlignment
  int64_t supported = 0;  ///< 1 if the NCCL library of this rank supports windows, else 0
};
/// Returns why these buffers, one per rank, cannot form a symmetric window; empty if they can. NCCL requires that the
/// buffer of a collective has the same offset in the window on every rank. To ensure this, the buffers must have equal
/// sizes and begin at multiples of nccl::kWindowAlignment.
std::string window_problem(std::span<const WindowOffer> offers);

/// The windows of one communicator.
class NcclWindows {
 public:
  /// `settle` waits until the communicator has completed its calls. All references must outlive this object.
  NcclWindows(std::shared_ptr<NcclLibrary> library, Communicator& host, std::function<void(nccl::Comm)> settle)
      : library_(std::move(library)), host_(host), settle_(std::move(settle)) {}

  /// Called by all ranks without pending operations. Creates a window of the memory on all ranks and returns an empty
  /// string. If a rank cannot create its window, no rank keeps one, and the reason is returned.
  std::string add(nccl::Comm comm, const std::string& name, const MutView& memory);
  /// Called before the communicator is finalized.
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

/// Memory from ncclMemAlloc, for windows.
class NcclMemory final : public MemorySource {
 public:
  explicit NcclMemory(std::shared_ptr<NcclLibrary> library) : library_(std::move(library)) {}
  void* allocate(int64_t bytes) override;
  void release(void* memory) noexcept override;

 private:
  std::shared_ptr<NcclLibrary> library_;
};

}  // namespace ashlar::comm
