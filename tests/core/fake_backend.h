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
  double measure_peak(DType, double) override { return 1; }
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
  DType logits_dtype(DType storage) const override { return storage; }
  int64_t loss_chunk_rows(int64_t N, int64_t, DType) const override { return N; }

  static double at(ConstView v, int64_t i) { return v.as<double>()[i / v.cols * v.stride + i % v.cols]; }
  static double& at(MutView v, int64_t i) { return v.as<double>()[i / v.cols * v.stride + i % v.cols]; }

  int copies = 0;

 protected:
  template <typename Args>
  void run(const Args&) {
    throw Bug("[fake] no such kernel");
  }
  void run(const Copy& a) {
    ++copies;
    for (int64_t i = 0; i < a.src.size(); ++i)
      at(a.dst, i) = at(a.src, i) + (a.mode == GradMode::kAccumulate ? at(a.dst, i) : 0);
  }
  void run(const Fill& a) {
    for (int64_t i = 0; i < a.dst.size(); ++i) at(a.dst, i) = a.value;
  }

#define ASHLAR_LAUNCH(name, Args) \
  void launch(const Args& args, Stream&) override { run(args); }
  ASHLAR_KERNELS(ASHLAR_LAUNCH)
#undef ASHLAR_LAUNCH

 private:
  HeapAllocator heap_;
};

}  // namespace ashlar::testing
