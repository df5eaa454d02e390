#include "kernels/memory_bandwidth.h"

#include <chrono>
#include <vector>

#include "kernels/cpu/arena_allocator.h"
#include "kernels/cpu/parallel_for.h"

namespace ashlar::kernels {

namespace {

/// Returns the median time of one call in seconds. Makes one warm-up call, then at least five timed calls, for about
/// `budget` seconds in total.
template <typename Call>
double median_seconds(double budget, const Call& call) {
  using Clock = std::chrono::steady_clock;
  call();
  std::vector<double> times;
  double total = 0;
  while (times.size() < 5 || total < budget) {
    const auto start = Clock::now();
    call();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

}  // namespace

MemoryBandwidth measure_memory_bandwidth(int num_threads, Allocator& memory) {
  cpu::Threads threads(num_threads);
  typedef float Vector __attribute__((vector_size(16)));  // wide enough to saturate memory
  constexpr int64_t kVectors = 16 << 20;
  constexpr int64_t kBytes = kVectors * static_cast<int64_t>(sizeof(Vector));
  const cpu::ScopedBlock a_block(memory, kBytes);
  const cpu::ScopedBlock b_block(memory, kBytes);
  const cpu::ScopedBlock c_block(memory, kBytes);
  Vector* a = a_block.as<Vector>();
  Vector* b = b_block.as<Vector>();
  Vector* c = c_block.as<Vector>();
  const auto timed = [&](int64_t arrays, auto body) {
    const double seconds = median_seconds(0.2, [&] {
      cpu::parallel_for(threads, kVectors, 4096, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) body(i);
      });
    });
    return static_cast<double>(kBytes * arrays) / seconds;
  };
  timed(3, [=](int64_t i) { a[i] = b[i] = c[i] = Vector{}; });
  MemoryBandwidth w;
  w.read = static_cast<double>(kBytes) / median_seconds(0.2, [&] {
             cpu::parallel_for(threads, kVectors, 4096, [&](int64_t begin, int64_t end) {
               Vector sums[4] = {};
               for (int64_t i = begin; i + 4 <= end; i += 4) {
                 for (int64_t k = 0; k < 4; ++k) sums[k] += b[i + k];
               }
               a[begin] =
                   sums[0] + sums[1] + sums[2] + sums[3];  // uses the sums, so that the loop is not optimized away
             });
           });
  w.copy = timed(2, [=](int64_t i) { a[i] = b[i]; });
  w.triad = timed(3, [=](int64_t i) { a[i] = b[i] + 0.5F * c[i]; });
  w.update = timed(3, [=](int64_t i) { a[i] = 0.999F * a[i] + b[i]; });
  return w;
}

}  // namespace ashlar::kernels
