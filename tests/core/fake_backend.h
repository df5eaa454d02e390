#pragma once

#include <cstdlib>

#include "core/backend/backend.h"

namespace ashlar::testing {

class HeapAllocator final : public Allocator {
 public:
  void* allocate(int64_t bytes) override {
    used_ += 1;
    return std::aligned_alloc(256, static_cast<size_t>((bytes + 511) / 256 * 256));
  }
  void release(void* block) override {
    used_ -= 1;
    std::free(block);
  }
  int64_t used_bytes() const override { return used_; }  ///< here: blocks, not bytes
  int64_t high_water_bytes() const override { return 0; }
  int64_t num_system_calls() const override { return 0; }

 private:
  int64_t used_ = 0;
};

/// A backend that can only copy and fill fp64: all that the tape itself asks for. Every kernel is a Bug.
class FakeBackend final : public Backend {
 public:
  std::string description() const override { return "fake"; }
  int64_t num_gemms() const override { return 0; }
  Allocator& allocator(MemoryKind) override { return heap_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<SynchronousStream>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<SynchronousEvent>(); }
  void copy_to_host(ConstView from, void* host, Stream&) override {
    for (int64_t i = 0; i < from.size(); ++i) static_cast<double*>(host)[i] = at(from, i);
  }
  void copy_from_host(const void* host, MutView to, Stream&) override {
    for (int64_t i = 0; i < to.size(); ++i) at(to, i) = static_cast<const double*>(host)[i];
  }
  void copy(const Copy& a, Stream&) override {
    ++copies;
    for (int64_t i = 0; i < a.src.size(); ++i)
      at(a.dst, i) = at(a.src, i) + (a.mode == GradMode::kAccumulate ? at(a.dst, i) : 0);
  }
  void fill(const Fill& a, Stream&) override {
    for (int64_t i = 0; i < a.dst.size(); ++i) at(a.dst, i) = a.value;
  }

  static double at(ConstView v, int64_t i) { return v.as<double>()[i / v.cols * v.stride + i % v.cols]; }
  static double& at(MutView v, int64_t i) { return v.as<double>()[i / v.cols * v.stride + i % v.cols]; }

  int copies = 0;

#define ASHLAR_NO_KERNEL(name, Args) \
  void name(const Args&, Stream&) override { throw Bug("[fake] " #name); }
  ASHLAR_NO_KERNEL(linear_forward, LinearForward)
  ASHLAR_NO_KERNEL(linear_backward_input, LinearBackwardInput)
  ASHLAR_NO_KERNEL(linear_backward_weight, LinearBackwardWeight)
  ASHLAR_NO_KERNEL(norm_forward, NormForward)
  ASHLAR_NO_KERNEL(norm_backward, NormBackward)
  ASHLAR_NO_KERNEL(norm_row_stats, NormRowStats)
  ASHLAR_NO_KERNEL(norm_apply, NormApply)
  ASHLAR_NO_KERNEL(norm_backward_row_sums, NormBackwardRowSums)
  ASHLAR_NO_KERNEL(norm_backward_apply, NormBackwardApply)
  ASHLAR_NO_KERNEL(activation_forward, ActivationForward)
  ASHLAR_NO_KERNEL(activation_backward, ActivationBackward)
  ASHLAR_NO_KERNEL(rope, Rope)
  ASHLAR_NO_KERNEL(attention_forward, AttentionForward)
  ASHLAR_NO_KERNEL(attention_backward, AttentionBackward)
  ASHLAR_NO_KERNEL(embedding_forward, EmbeddingForward)
  ASHLAR_NO_KERNEL(embedding_backward, EmbeddingBackward)
  ASHLAR_NO_KERNEL(loss_row_max, LossRowMax)
  ASHLAR_NO_KERNEL(loss_row_sums, LossRowSums)
  ASHLAR_NO_KERNEL(loss_reduce, LossReduce)
  ASHLAR_NO_KERNEL(loss_backward, LossBackward)
  ASHLAR_NO_KERNEL(residual_forward, ResidualForward)
  ASHLAR_NO_KERNEL(dropout_backward, DropoutBackward)
  ASHLAR_NO_KERNEL(random_fill, RandomFill)
  ASHLAR_NO_KERNEL(adamw, AdamW)
  ASHLAR_NO_KERNEL(sum_squares, SumSquares)
#undef ASHLAR_NO_KERNEL

 private:
  HeapAllocator heap_;
};

}  // namespace ashlar::testing
