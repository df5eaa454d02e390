#pragma once

#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/tuning/tuner.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/host/launch_kernel.h"

namespace ashlar::ASHLAR_DEV {

/// The backend of a GPU. Each contract X.h of core/backend is implemented in kernels/cuda/X.cu, attention.h in
/// kernels/cuda/attention. Not thread-safe: used by one thread.
class CudaBackend : public Backend, public Tunable {
 public:
  explicit CudaBackend(const DeviceOptions& options);
  ~CudaBackend() override;

  std::string description() const override;
  double measure_peak(DType dtype, double seconds) override;
  int64_t num_gemms() const override { return device_.num_gemms(); }
  Allocator& allocator(MemoryKind kind) override { return device_.allocator(kind); }
  std::unique_ptr<Stream> make_stream() override { return device_.make_stream(); }
  std::unique_ptr<Event> make_event() override { return device_.make_event(); }
  Tuner* tuner() override { return gemm_tuner(device_); }
  void copy_to_host(ConstView device, void* host, Stream& stream) override;
  void copy_from_host(const void* host, MutView device, Stream& stream) override;

  DType logits_dtype(DType storage) const override { return storage; }
  int64_t loss_chunk_rows(int64_t N, int64_t V, DType storage) const override;

  Device& device() { return device_; }

 protected:
#define ASHLAR_LAUNCH(name, Args) void launch(const Args& args, Stream& stream) override;
  ASHLAR_KERNELS(ASHLAR_LAUNCH)
#undef ASHLAR_LAUNCH

 private:
  /// Returns scratch memory for one call, aligned to 256 bytes. The memory belongs to the stream: the next call on the
  /// same stream gets the same memory. It grows in the first training steps only.
  void* scratch(Stream& stream, int64_t bytes) { return device_.scratch(stream, bytes); }

  Device device_;
  std::shared_ptr<CublasLtPlans> peak_plans_;  ///< plans of measure_peak, kept apart from the plans that a run tunes
};

}  // namespace ashlar::ASHLAR_DEV
