#pragma once

#include <array>
#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "kernels/cpu/arena_allocator.h"
#include "kernels/cpu/cpu_info.h"
#include "kernels/cpu/cpu_options.h"

namespace ashlar::cpu {

class Gemm;

/// The backend of the host's own cores. Every call has finished when it returns. Each contract X.h of core/backend is
/// implemented in kernels/cpu/X.cpp. Not thread-safe: one thread drives it, it uses `threads()` OpenMP threads.
class CpuBackend final : public Backend {
 public:
  /// Throws input_error when options.threads is negative or options.max_isa unknown.
  explicit CpuBackend(const CpuOptions& options);
  ~CpuBackend() override;

  std::string description() const override;
  int64_t num_gemms() const override;
  Allocator& allocator(MemoryKind kind) override;
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;
  void copy_to_host(ConstView device, void* host, Stream& stream) override;
  void copy_from_host(const void* host, MutView device, Stream& stream) override;

  void linear_forward(const LinearForward& args, Stream& stream) override;
  void linear_backward_input(const LinearBackwardInput& args, Stream& stream) override;
  void linear_backward_weight(const LinearBackwardWeight& args, Stream& stream) override;
  void norm_forward(const NormForward& args, Stream& stream) override;
  void norm_backward(const NormBackward& args, Stream& stream) override;
  void norm_row_stats(const NormRowStats& args, Stream& stream) override;
  void norm_apply(const NormApply& args, Stream& stream) override;
  void norm_backward_row_sums(const NormBackwardRowSums& args, Stream& stream) override;
  void norm_backward_apply(const NormBackwardApply& args, Stream& stream) override;
  void activation_forward(const ActivationForward& args, Stream& stream) override;
  void activation_backward(const ActivationBackward& args, Stream& stream) override;
  void rope(const Rope& args, Stream& stream) override;
  void attention_forward(const AttentionForward& args, Stream& stream) override;
  void attention_backward(const AttentionBackward& args, Stream& stream) override;
  void embedding_forward(const EmbeddingForward& args, Stream& stream) override;
  void embedding_backward(const EmbeddingBackward& args, Stream& stream) override;
  void loss_row_max(const LossRowMax& args, Stream& stream) override;
  void loss_row_sums(const LossRowSums& args, Stream& stream) override;
  void loss_reduce(const LossReduce& args, Stream& stream) override;
  void loss_backward(const LossBackward& args, Stream& stream) override;
  void residual_forward(const ResidualForward& args, Stream& stream) override;
  void dropout_backward(const DropoutBackward& args, Stream& stream) override;
  void copy(const Copy& args, Stream& stream) override;
  void fill(const Fill& args, Stream& stream) override;
  void random_fill(const RandomFill& args, Stream& stream) override;
  void adamw(const AdamW& args, Stream& stream) override;
  void sum_squares(const SumSquares& args, Stream& stream) override;

  int threads() const { return threads_; }
  const CpuInfo& info() const { return info_; }

 private:
  Allocator& workspace() { return allocator(MemoryKind::kWorkspace); }  // scratch of one kernel call: use ScopedBlock

  CpuInfo info_;
  int threads_ = 1;
  Log* log_ = nullptr;
  std::array<std::unique_ptr<ArenaAllocator>, kNumMemoryKinds> arenas_;
  std::unique_ptr<Gemm> gemm_;
};

}  // namespace ashlar::cpu
