#pragma once

#include <array>
#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/device/host_threads.h"
#include "kernels/cpu/arena_allocator.h"
#include "kernels/cpu/cpu_info.h"
#include "kernels/cpu/cpu_options.h"
#include "kernels/cpu/threads.h"

namespace ashlar::cpu {

class Gemm;

/// The backend of the host's cores. Calls are complete when they return. A contract X.h of core/backend is implemented
/// in kernels/cpu/X.cpp (attention.h: in attention/; linear_activation.h: in linear.cpp). Not thread-safe: one thread
/// calls it, and each call computes with threads() threads.
class CpuBackend final : public Backend, public HostThreads {
 public:
  /// Throws input_error when options.threads is negative, and the errors of detect_cpu for options.max_isa.
  explicit CpuBackend(const CpuOptions& options);
  ~CpuBackend() override;

  std::string description() const override;
  double measure_peak(DType dtype, double seconds) override;
  int64_t num_gemms() const override;
  Allocator& allocator(MemoryKind kind) override;
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;
  void copy_to_host(ConstView device, void* host, Stream& stream) override;
  void copy_from_host(const void* host, MutView device, Stream& stream) override;

  DType logits_dtype(DType storage) const override { return accumulate_dtype(storage); }
  int64_t loss_chunk_rows(int64_t N, int64_t V, DType storage) const override;

  int threads() const override { return threads_.size(); }
  double waited_sec() const override { return threads_.waited_sec(); }
  const CpuInfo& info() const { return info_; }

 protected:
#define ASHLAR_LAUNCH(name, Args) void launch(const Args& args, Stream& stream) override;
  ASHLAR_KERNELS(ASHLAR_LAUNCH)
#undef ASHLAR_LAUNCH

 private:
  /// Returns the allocator for scratch memory of one kernel call; allocate with ScopedBlock.
  Allocator& workspace() { return allocator(MemoryKind::kWorkspace); }

  CpuInfo info_;
  Threads threads_;
  Log* log_ = nullptr;
  std::array<std::unique_ptr<ArenaAllocator>, kNumMemoryKinds> arenas_;
  std::unique_ptr<Gemm> gemm_;
};

}  // namespace ashlar::cpu
