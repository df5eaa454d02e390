#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/kernel_grid.h"

namespace ashlar::test {

using Outputs = std::vector<HostMatrix>;

/// CPU backends for every instruction set this machine has, with one and with two threads.
class EveryCpu {
 public:
  EveryCpu() {
    for (const char* isa : {"avx512", "avx2", "baseline"}) {
      for (const int threads : {1, 2}) {
        auto backend = std::make_unique<cpu::CpuBackend>(
            cpu::CpuOptions{.threads = threads, .log = nullptr, .max_isa = isa, .arena_cap_bytes = 0});
        cases_.push_back({str_cat(cpu::name_of(backend->info().isa), ", ", threads, " threads"), std::move(backend)});
      }
    }
  }

  /// Any one of them, of the best instruction set.
  cpu::CpuBackend& one() { return use(0); }
  SynchronousStream& stream() { return stream_; }

  /// `run` on each backend, `verify` on what it returns. Thread counts must give the same bits; so must the
  /// instruction sets with fused multiply-add; `verify` is called once for results of the same bits.
  template <typename Run, typename Verify>
  void each(const Run& run, const Verify& verify) {
    std::vector<Outputs> results;
    for (size_t i = 0; i < cases_.size(); ++i) {
      SCOPED_TRACE(cases_[i].name);
      results.push_back(run(use(i)));
      const bool fused = cases_[i].backend->info().isa != cpu::Isa::kBaseline;
      const size_t reference = fused ? 0 : i - i % 2;
      const bool same = results[i] == results[reference];
      EXPECT_TRUE(same) << cases_[i].name << " and " << cases_[reference].name << " differ in their bits";
      if (same && i != reference) continue;
      for (const HostMatrix& m : results.back()) EXPECT_TRUE(m.padding_untouched());
      verify(results.back());
    }
  }

 private:
  struct Case {
    std::string name;
    std::unique_ptr<cpu::CpuBackend> backend;
  };

  cpu::CpuBackend& use(size_t i) { return *cases_[i].backend; }

  std::vector<Case> cases_;
  SynchronousStream stream_;
};

/// expected is a function of the element; the error allowed is tolerance(dtype, length, magnitude(r, c)).
template <typename Expected, typename Magnitude>
void expect_near(const HostMatrix& got, int64_t length, const Expected& expected, const Magnitude& magnitude,
                 const char* name) {
  for (int64_t r = 0; r < got.rows(); ++r) {
    for (int64_t c = 0; c < got.cols(); ++c) {
      const double allowed = tolerance(got.dtype(), length, magnitude(r, c));
      ASSERT_NEAR(got.at(r, c), expected(r, c), allowed)
          << name << "[" << r << ", " << c << "] " << name_of(got.dtype()) << " of [" << got.rows() << ", "
          << got.cols() << "]";
    }
  }
}

}  // namespace ashlar::test
