#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/host/sizes.h"

namespace ashlar::ASHLAR_DEV {

namespace {

constexpr int64_t kLeastPeakExtent = 256;

/// Swaps two objects for the duration of a scope.
template <typename T>
struct Swapped {
  Swapped(T& one, T& other) : a(one), b(other) { std::swap(a, b); }
  ~Swapped() { std::swap(a, b); }
  T &a, &b;
};

}  // namespace

CudaBackend::CudaBackend(const DeviceOptions& options) : device_(options) {}

CudaBackend::~CudaBackend() = default;

std::string CudaBackend::description() const { return device_.description(); }

// Times square matrix products, doubling their size until one takes a millisecond or has kPeakExtent rows, and returns
// the highest rate in flop/s. On a GPU, cublasLt computes the products. On an emulated GPU, they are computed by
// loops on the host, and "percent of peak" then says nothing about a GPU.
double CudaBackend::measure_peak(DType dtype, double seconds) {
  using Clock = std::chrono::steady_clock;
  const std::unique_ptr<Stream> stream = make_stream();
  Allocator& memory = allocator(MemoryKind::kActivations);  // training steps use the same kind of memory
  const Swapped own_plans(device_.cublaslt_plans(), peak_plans_);
  double best = 0, rate = 0;
  for (int64_t n = kLeastPeakExtent; n <= kPeakExtent && best < 1e-3; n *= 2) {
    void* blocks[3];
    for (void*& block : blocks) block = memory.allocate(n * n * size_of(dtype));
    const auto view = [&](int i) { return MutView{blocks[i], dtype, n, n, n}; };
    // Random numbers, as in training: products of constants draw less power, so that the clock stays higher.
    for (int i = 0; i < 2; ++i)
      random_fill({.dst = view(i), .rng_stream = static_cast<uint64_t>(i), .global_cols = n}, *stream);
    const auto run = [&] {
      gemm(device_, {.a = view(0), .b = view(1), .c = view(2), .transpose_b = true}, *stream);
      stream->synchronize();
    };
    run();
    const Clock::time_point begin = Clock::now();
    double now = 0, before = 0;
    best = 1e300;
    do {
      run();
      now = std::chrono::duration<double>(Clock::now() - begin).count();
      best = std::min(best, now - before);
      before = now;
    } while (now < seconds && (best >= 1e-3 || n == kPeakExtent || now < 0.1 * seconds));
    rate = std::max(rate, 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / best);
    for (void* block : blocks) memory.release(block);
  }
  return rate;
}

int64_t CudaBackend::loss_chunk_rows(int64_t N, int64_t V, DType storage) const {
  return cuda::loss_chunk_rows(N, V * size_of(logits_dtype(storage)));
}

void CudaBackend::copy_to_host(ConstView device, void* host, Stream& stream) {
  ASHLAR_CHECK(device.contiguous(), "expected contiguous rows, got rows = ", device.rows, " cols = ", device.cols,
               " stride = ", device.stride);
  device_.copy(host, device.data, device.size() * size_of(device.dtype), stream);
}

void CudaBackend::copy_from_host(const void* host, MutView device, Stream& stream) {
  ASHLAR_CHECK(device.contiguous(), "expected contiguous rows, got rows = ", device.rows, " cols = ", device.cols,
               " stride = ", device.stride);
  device_.copy(device.data, host, device.size() * size_of(device.dtype), stream);
}

}  // namespace ashlar::ASHLAR_DEV
