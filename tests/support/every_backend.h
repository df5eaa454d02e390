#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/philox.h"
#include "tests/support/kernel_grid.h"
#include "tests/support/long_form.h"

namespace ashlar::test {

using Outputs = std::vector<HostMatrix>;

/// One backend that the suites of kernels run on.
struct BackendUnderTest {
  std::string name;                 ///< letters, digits and underscores
  std::string bits;                 ///< backends with the same text here must give the same bits
  bool products_only = false;       ///< differs from others in matrix products alone
  int64_t one_in = 1;               ///< of the problems of the short form it gets one in so many,
  int64_t long_one_in = 1;          ///< and of the long form's
  bool bf16_probabilities = false;  ///< bf16 attention multiplies them as tensor cores do: rounded to bf16
  bool properties = true;           ///< false: has the bits of one whose suite asks for them, and takes long
  std::function<std::unique_ptr<Backend>()> make;

  /// Whether it gets the problem of this number, from zero on, of a test: the first, which may be the only one, and
  /// then one of each group of `one_in`, drawn, so that no loop over three modes keeps two of them from it.
  bool gets(int64_t problem) const {
    const int64_t size = ashlar::testing::long_form() ? long_one_in : one_in, group = problem / size;
    const uint32_t drawn = group == 0 ? 0 : Philox::block(10, 0, static_cast<uint64_t>(group))[0];
    return problem % size == drawn % size;
  }
};
inline void PrintTo(const BackendUnderTest& b, std::ostream* out) { *out << b.name; }

/// Defined once in each executable that links the suites. The first is the one that cases take which need just one, the
/// last in the long form.
std::vector<BackendUnderTest> backends_under_test();

/// All of them.
class EveryBackend {
 public:
  EveryBackend() {
    for (const BackendUnderTest& under_test : backends_under_test()) {
      if (under_test.products_only) continue;
      std::unique_ptr<Backend> backend = under_test.make();
      std::unique_ptr<Stream> stream = backend->make_stream();
      cases_.push_back({under_test, std::move(backend), std::move(stream)});
    }
  }

  Backend& one() { return use(ashlar::testing::long_form() ? cases_.size() - 1 : 0); }
  /// Of the backend in use.
  Stream& stream() { return *cases_[used_].stream; }
  /// Until results can be read.
  void finish() { stream().synchronize(); }

  /// `run` on each backend that gets the problem, `verify` on what it returns. Backends of one kind must give the same
  /// bits; `verify` is called once for results of the same bits.
  template <typename Run, typename Verify>
  void each(const Run& run, const Verify& verify) {
    std::vector<Outputs> results(cases_.size());
    const int64_t problem = problems_++;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const BackendUnderTest& under_test = cases_[i].under_test;
      if (!under_test.gets(problem)) continue;
      SCOPED_TRACE(under_test.name);
      results[i] = run(use(i));
      finish();
      size_t reference = 0;
      while (cases_[reference].under_test.bits != under_test.bits || !cases_[reference].under_test.gets(problem)) {
        ++reference;
      }
      const bool same = results[i] == results[reference];
      EXPECT_TRUE(same) << under_test.name << " and " << cases_[reference].under_test.name << " differ in their bits";
      if (same && i != reference) continue;
      for (const HostMatrix& m : results[i]) EXPECT_TRUE(m.padding_untouched());
      verify(results[i]);
    }
  }

 private:
  struct Case {
    BackendUnderTest under_test;
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Stream> stream;
  };

  Backend& use(size_t i) {
    used_ = i;
    return *cases_[i].backend;
  }

  std::vector<Case> cases_;
  size_t used_ = 0;
  int64_t problems_ = 0;
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
