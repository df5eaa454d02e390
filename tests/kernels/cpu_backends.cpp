#include <algorithm>
#include <cstdlib>
#include <memory>

#include "core/base/strings.h"
#include "kernels/cpu/cpu_info.h"
#include "kernels/make_backend.h"
#include "tests/support/deferred/deferred_backend.h"
#include "tests/support/every_backend.h"
#include "tests/support/sanitizers.h"
#include "tests/support/test_memory.h"

namespace ashlar::test {

// The CPU backend with every instruction set that this machine has, on one and on two threads. Sums of all that have
// fused multiply-add are the same bits; the bf16 dot product changes matrix products only. The best of them, on one
// thread, also behind queued streams. Under the sanitizers a part of the problems is left out: one thread touches the
// same memory as two, which have bounds between them besides; other instruction sets have shorter vectors.
std::vector<BackendUnderTest> backends_under_test() {
  std::vector<BackendUnderTest> all;
  std::string best_isa;
  for (const std::string isa : {"avx512", "avx2", "baseline", "avx512_bf16"}) {
    if (cpu::name_of(cpu::detect_cpu(isa).isa) != isa) continue;
    if (best_isa.empty()) best_isa = isa;
    for (const int threads : {1, 2}) {
      const int part = threads == 1 ? 4 : isa == best_isa ? 1 : 2;
      all.push_back({.name = str_cat(isa, "_", threads, "threads"),
                     .bits = isa == "baseline" ? "without fused multiply-add" : "with fused multiply-add",
                     .products_only = isa == "avx512_bf16",
                     .one_in = testing::under_address_sanitizer() ? part : 1,
                     .make = [=] { return kernels::make_backend({.threads = threads, .max_isa = isa}); }});
    }
  }
  const auto best = std::find_if(all.begin(), all.end(), [](const BackendUnderTest& b) { return !b.products_only; });
  all.push_back({.name = "deferred_" + best->name, .bits = best->bits, .one_in = 7, .make = [make = best->make] {
                   return std::make_unique<testing::DeferredBackend>(make());
                 }});
  return all;
}

void* allocate_test_memory(int64_t bytes) {
  return std::aligned_alloc(256, static_cast<size_t>((bytes + 255) / 256 * 256));
}
void release_test_memory(void* block, int64_t /*bytes*/) { std::free(block); }

}  // namespace ashlar::test
