#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/threads.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <vector>

#include "core/base/philox.h"
#include "core/base/strings.h"
#include "kernels/cpu/arena_allocator.h"
#include "kernels/cpu/gemm/tile_kernels.h"
#include "tests/support/sanitizers.h"

namespace ashlar::cpu {
namespace {

double unit_roundoff(DType dtype) {
  if (dtype == DType::kFloat64) return 0x1p-53;
  return dtype == DType::kFloat32 ? 0x1p-24 : 0x1p-8;
}

/// A matrix with guard elements around each row, filled from Philox and read back as double.
class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t cols, int64_t pad, uint64_t rng_stream)
      : dtype_(dtype), rows_(rows), cols_(cols), stride_(cols + pad) {
    bytes_.assign(static_cast<size_t>((rows * stride_ + kGuard) * size_of(dtype)), 0x5a);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        const uint64_t index = static_cast<uint64_t>(i * cols + j);
        set(i, j, 2.0 * Philox::uniform(Philox::block(7, rng_stream, index)[0]) - 1.0);
      }
    }
  }

  void set(int64_t i, int64_t j, double value) {
    char* at = bytes_.data() + (i * stride_ + j) * size_of(dtype_);
    if (dtype_ == DType::kFloat64) {
      std::memcpy(at, &value, sizeof(value));
    } else if (dtype_ == DType::kFloat32) {
      const float x = static_cast<float>(value);
      std::memcpy(at, &x, sizeof(x));
    } else {
      const BF16 x(static_cast<float>(value));
      std::memcpy(at, &x, sizeof(x));
    }
  }
  double at(int64_t i, int64_t j) const {
    const char* p = bytes_.data() + (i * stride_ + j) * size_of(dtype_);
    if (dtype_ == DType::kFloat64) {
      double x = 0;
      std::memcpy(&x, p, sizeof(x));
      return x;
    }
    if (dtype_ == DType::kFloat32) {
      float x = 0;
      std::memcpy(&x, p, sizeof(x));
      return x;
    }
    BF16 x;
    std::memcpy(&x, p, sizeof(x));
    return static_cast<float>(x);
  }
  /// What lies between and after the rows is as it was.
  bool guards_intact() const {
    const int64_t size = size_of(dtype_);
    for (int64_t i = 0; i < rows_; ++i) {
      const int64_t begin = (i * stride_ + cols_) * size;
      const int64_t end = (i + 1 < rows_ ? (i + 1) * stride_ : rows_ * stride_ + kGuard) * size;
      for (int64_t b = begin; b < end; ++b) {
        if (bytes_[static_cast<size_t>(b)] != 0x5a) return false;
      }
    }
    return true;
  }
  MutView view() { return {bytes_.data(), dtype_, rows_, cols_, stride_}; }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  static constexpr int64_t kGuard = 64;
  DType dtype_;
  int64_t rows_, cols_, stride_;
  std::vector<char> bytes_;
};

struct Case {
  int64_t m, n, k;
  DType storage = DType::kFloat32;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false, bias = false, wide_result = false;
  int64_t pad = 0;

  std::string text() const {
    return str_cat(name_of(storage), " m=", m, " n=", n, " k=", k,
                   transpose_a   ? " tn"
                   : transpose_b ? " nt"
                                 : " nn",
                   accumulate ? " accumulate" : "", bias ? " bias" : "", wide_result ? " wide" : "", " pad=", pad);
  }
};

/// The operands of a case, freshly filled.
struct Operands {
  Matrix a, b, bias, c;
  GemmArgs args;

  explicit Operands(const Case& t)
      : a(t.storage, t.transpose_a ? t.k : t.m, t.transpose_a ? t.m : t.k, t.pad, 1),
        b(t.storage, t.transpose_b ? t.n : t.k, t.transpose_b ? t.k : t.n, t.pad, 2),
        bias(t.storage, 1, t.n, 0, 3),
        c(t.wide_result ? accumulate_dtype(t.storage) : t.storage, t.m, t.n, t.pad, 4) {
    args = {.a = a.view(),
            .b = b.view(),
            .bias = t.bias ? ConstView(bias.view()) : ConstView(),
            .c = c.view(),
            .transpose_a = t.transpose_a,
            .transpose_b = t.transpose_b,
            .accumulate = t.accumulate};
  }
};

/// Compares with plain fp64 loops. The bound: k fused steps and the final additions each err by at most one unit of
/// the arithmetic relative to the sum of magnitudes (Higham 2002, eq. 3.5), and the store by one of its dtype.
void expect_right(const Case& t, Isa isa, int threads) {
  ArenaAllocator workspace(MemoryKind::kWorkspace);
  Threads team(threads);
  Gemm gemm(isa, team, workspace);
  Operands x(t);
  const Operands before(t);
  gemm.run(x.args);
  const double arithmetic = unit_roundoff(accumulate_dtype(t.storage)) * static_cast<double>(t.k + 4);
  const double store = unit_roundoff(x.args.c.dtype);
  for (int64_t i = 0; i < t.m; ++i) {
    for (int64_t j = 0; j < t.n; ++j) {
      double want = t.accumulate ? before.c.at(i, j) : t.bias ? before.bias.at(0, j) : 0;
      double magnitude = std::abs(want);
      for (int64_t p = 0; p < t.k; ++p) {
        const double term = (t.transpose_a ? before.a.at(p, i) : before.a.at(i, p)) *
                            (t.transpose_b ? before.b.at(j, p) : before.b.at(p, j));
        want += term;
        magnitude += std::abs(term);
      }
      const double bound = 1.01 * (arithmetic * magnitude + store * std::abs(want)) + 1e-300;
      ASSERT_NEAR(x.c.at(i, j), want, bound)
          << t.text() << " at (" << i << ", " << j << ") isa " << name_of(isa) << " threads " << threads;
    }
  }
  EXPECT_TRUE(x.c.guards_intact()) << t.text();
  EXPECT_EQ(x.a.bytes(), before.a.bytes());
  EXPECT_EQ(x.b.bytes(), before.b.bytes());
  EXPECT_EQ(workspace.used_bytes(), 0);
}

std::vector<Isa> instruction_sets() {
  std::vector<Isa> sets;
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (isa <= detect_cpu("avx512_bf16").isa) sets.push_back(isa);
  }
  return sets;
}

/// Under the sanitizers one problem in so many is run: `number` tells which.
bool left_out(int number, int one_in) { return testing::under_address_sanitizer() && number % one_in != 0; }

/// All three kinds, modes and result dtypes of one size.
void expect_all_right(int64_t m, int64_t n, int64_t k, int64_t pad, Isa isa, int threads) {
  for (const DType storage : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    for (const int kind : {0, 1, 2}) {
      for (const int mode : {0, 1, 2}) {
        for (const bool wide : {false, true}) {
          if (wide && storage != DType::kBFloat16) continue;
          const Case t{.m = m,
                       .n = n,
                       .k = k,
                       .storage = storage,
                       .transpose_a = kind == 2,
                       .transpose_b = kind == 0,
                       .accumulate = mode == 1,
                       .bias = mode == 2,
                       .wide_result = wide,
                       .pad = pad};
          expect_right(t, isa, threads);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(GemmProducts, OddShapes) {
  int place = 0;
  for (const Isa isa : instruction_sets()) {
    for (const int64_t m : {1, 3, 29, 67}) {
      for (const int64_t n : {1, 17, 48, 97}) {
        for (const int64_t k : {1, 7, 33, 64}) {
          if (left_out(place++, 3)) continue;
          expect_all_right(m, n, k, 0, isa, 1);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(GemmProducts, StridedRowsAndTwoThreads) {
  for (const Isa isa : instruction_sets()) {
    expect_all_right(29, 97, 48, 5, isa, 2);
    expect_all_right(48, 33, 130, 3, isa, 2);
    expect_all_right(1, 70, 48, 16, isa, 2);
  }
}

TEST(GemmProducts, SeveralSlicesOfK) {
  for (const Isa isa : instruction_sets()) expect_all_right(13, 40, 1601, 2, isa, 2);
}

TEST(GemmProducts, SeveralBlocks) {
  const Isa isa = instruction_sets().back();
  expect_all_right(1601, 21, 5, 0, isa, 2);
  expect_all_right(3, 6200, 9, 0, isa, 2);
}

TEST(GemmProducts, RepeatsToTheBit) {
  for (const Isa isa : instruction_sets()) {
    for (const DType storage : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      const Case t{.m = 131, .n = 200, .k = 900, .storage = storage, .transpose_b = true};
      ArenaAllocator workspace(MemoryKind::kWorkspace);
      Threads team(2);
      Gemm gemm(isa, team, workspace);
      Operands first(t);
      gemm.run(first.args);
      for (int repeat = 0; repeat < 5; ++repeat) {
        Operands again(t);
        gemm.run(again.args);
        ASSERT_EQ(first.c.bytes(), again.c.bytes()) << t.text();
      }
    }
  }
}

TEST(Gemm, OwnKernelsGiveTheSameBitsForAnyThreadCount) {
  for (const Isa isa : instruction_sets()) {
    for (const DType storage : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      for (const bool transpose_a : {false, true}) {
        const Case t{
            .m = 113, .n = 210, .k = 1000, .storage = storage, .transpose_a = transpose_a, .transpose_b = !transpose_a};
        std::vector<char> one_thread;
        for (const int threads : {1, 2, 3, 5}) {
          ArenaAllocator workspace(MemoryKind::kWorkspace);
          Threads team(threads);
          Gemm gemm(isa, team, workspace);
          Operands x(t);
          gemm.run(x.args);
          if (threads == 1) one_thread = x.c.bytes();
          ASSERT_EQ(x.c.bytes(), one_thread) << t.text() << " threads " << threads;
        }
      }
    }
  }
}

// Products that all threads share, items of whole products, and items of a part of their columns.
TEST(Gemm, ProductsOfAListHaveTheBitsOfEachAlone) {
  for (const Isa isa : instruction_sets()) {
    for (const DType storage : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      for (const int kind : {0, 1, 2}) {
        if (left_out(static_cast<int>(isa) + static_cast<int>(storage) + kind, 3)) continue;
        std::vector<Case> cases;
        for (const auto& [m, n, k] : {std::array<int64_t, 3>{200, 601, 300},
                                      {1, 601, 300},
                                      {41, 601, 301},
                                      {37, 800, 7},
                                      {90, 530, 130},
                                      {13, 9, 900},
                                      {150, 1100, 200}}) {
          cases.push_back({.m = m,
                           .n = n,
                           .k = k,
                           .storage = storage,
                           .transpose_a = kind == 2,
                           .transpose_b = kind == 0,
                           .accumulate = kind == 2,
                           .bias = kind == 0,
                           .wide_result = kind == 2,
                           .pad = m % 3});
        }
        std::vector<std::vector<char>> alone;
        for (const Case& t : cases) {
          ArenaAllocator workspace(MemoryKind::kWorkspace);
          Threads team(2);
          Operands x(t);
          Gemm(isa, team, workspace).run(x.args);
          alone.push_back(x.c.bytes());
        }
        for (const int threads : {1, 2, 5}) {
          ArenaAllocator workspace(MemoryKind::kWorkspace);
          Threads team(threads);
          Gemm gemm(isa, team, workspace);
          std::deque<Operands> listed;
          std::vector<GemmArgs> list;
          for (const Case& t : cases) list.push_back(listed.emplace_back(t).args);
          gemm.run_all(list);
          EXPECT_EQ(gemm.num_runs(), std::ssize(cases));
          EXPECT_EQ(workspace.used_bytes(), 0);
          for (size_t i = 0; i < cases.size(); ++i)
            ASSERT_EQ(listed[i].c.bytes(), alone[i]) << cases[i].text() << " threads " << threads;
        }
      }
    }
  }
}

// a as rows of k is read in place when its stride is short; a page from row to row, or as rows of m, it is packed.
TEST(Gemm, TheSameBitsPackedAndInPlace) {
  for (const Isa isa : instruction_sets()) {
    for (const DType storage : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      for (const int64_t m : {1, 12, 65}) {
        for (const int64_t k : {64, 901}) {
          const Case t{.m = m, .n = 48, .k = k, .storage = storage, .transpose_b = true, .bias = true, .pad = 3};
          ArenaAllocator workspace(MemoryKind::kWorkspace);
          Threads team(2);
          Gemm gemm(isa, team, workspace);
          Operands x(t);
          gemm.run(x.args);
          const std::vector<char> in_place = x.c.bytes();
          Matrix paged(storage, m, k, 8192 - k, 1);  // the same values: they depend on site and position alone
          GemmArgs args = x.args;
          args.a = paged.view();
          gemm.run(args);
          ASSERT_EQ(x.c.bytes(), in_place) << t.text() << " isa " << name_of(isa) << " rows a page apart";
          Matrix columns(storage, k, m, 1, 1);
          Matrix b(storage, k, t.n, 1, 2);
          for (int64_t p = 0; p < k; ++p) {
            for (int64_t i = 0; i < m; ++i) columns.set(p, i, x.a.at(i, p));
            for (int64_t j = 0; j < t.n; ++j) b.set(p, j, x.b.at(j, p));
          }
          args.a = columns.view();
          args.b = b.view();
          args.transpose_a = true;
          args.transpose_b = false;
          gemm.run(args);
          ASSERT_EQ(x.c.bytes(), in_place) << t.text() << " isa " << name_of(isa) << " as columns";
        }
      }
    }
  }
}

// The tile kernels themselves, so that the choice between them is no part of the test.
template <typename Acc>
void expect_same_tiles(const GemmKernels<Acc>& kernels) {
  ASSERT_NE(kernels.tile_in_place, nullptr);
  constexpr int64_t kGroups = 37;
  const int64_t elem = kernels.panel_elem_bytes;
  const int64_t stride = (kGroups + 5) * elem;
  std::vector<char> a(static_cast<size_t>(kernels.tile_rows * stride));
  std::vector<char> panel(static_cast<size_t>(kernels.tile_rows * kGroups * elem));
  alignas(64) std::array<Acc, kGroups * kMaxTileCols> b;
  const auto random = [](uint64_t rng_stream, uint64_t i) {
    return static_cast<Acc>(Philox::uniform(Philox::block(7, rng_stream, i)[0]) - 0.5);
  };
  // Read as pairs of bf16 these are arbitrary numbers, NaN among them: the bits must agree all the same.
  for (size_t i = 0; i < a.size() / sizeof(Acc); ++i) {
    const Acc value = random(1, i);
    std::memcpy(a.data() + i * sizeof(Acc), &value, sizeof(value));
  }
  for (size_t i = 0; i < b.size(); ++i) b[i] = random(2, i);
  for (int rows = 1; rows <= kernels.tile_rows; ++rows) {
    for (int64_t p = 0; p < kGroups; ++p) {
      for (int r = 0; r < rows; ++r) {
        std::memcpy(panel.data() + (p * rows + r) * elem, a.data() + r * stride + p * elem, static_cast<size_t>(elem));
      }
    }
    for (const int vectors : {1, 2}) {
      std::array<Acc, kMaxTileRows * kMaxTileCols> packed{};
      std::array<Acc, kMaxTileRows * kMaxTileCols> in_place{};
      TileArgs<Acc> args{.a = panel.data(), .b = b.data(), .groups = kGroups, .ld_out = kMaxTileCols};
      args.out = packed.data();
      kernels.tile(rows, vectors, args);
      args.a = a.data();
      args.a_stride = stride;
      args.out = in_place.data();
      kernels.tile_in_place(rows, vectors, args);
      EXPECT_EQ(std::memcmp(packed.data(), in_place.data(), sizeof(packed)), 0) << rows << " x " << vectors;
      EXPECT_NE(packed[0], Acc{0});
    }
  }
}

TEST(Gemm, TilesGiveTheSameBitsPackedAndInPlace) {
  for (const Isa isa : instruction_sets()) {
    SCOPED_TRACE(name_of(isa));
    expect_same_tiles(float_kernels(isa, DType::kFloat32));
    expect_same_tiles(double_kernels(isa));
    EXPECT_EQ(float_kernels(isa, DType::kBFloat16).tile_in_place, nullptr);
    if (isa == Isa::kAvx512Bf16) expect_same_tiles(bf16_dot_kernels());
  }
}

TEST(Gemm, NothingIsLeftOfAnOverwrittenNaN) {
  for (const Isa isa : instruction_sets()) {
    for (const DType storage : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      const Case t{.m = 14, .n = 37, .k = 800, .storage = storage, .transpose_b = true};
      ArenaAllocator workspace(MemoryKind::kWorkspace);
      Threads team(1);
      Gemm gemm(isa, team, workspace);
      Operands x(t);
      for (int64_t i = 0; i < t.m; ++i) {
        for (int64_t j = 0; j < t.n; ++j) x.c.set(i, j, std::numeric_limits<double>::quiet_NaN());
      }
      gemm.run(x.args);
      for (int64_t i = 0; i < t.m; ++i) {
        for (int64_t j = 0; j < t.n; ++j) ASSERT_TRUE(std::isfinite(x.c.at(i, j))) << t.text();
      }
    }
  }
}

TEST(Gemm, NonFiniteInputsReachTheirResults) {
  for (const Isa isa : instruction_sets()) {
    for (const DType storage : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      const Case t{.m = 5, .n = 40, .k = 70, .storage = storage, .transpose_b = true};
      ArenaAllocator workspace(MemoryKind::kWorkspace);
      Threads team(1);
      Gemm gemm(isa, team, workspace);
      Operands x(t);
      x.a.set(2, 69, std::numeric_limits<double>::quiet_NaN());
      x.b.set(39, 3, std::numeric_limits<double>::infinity());
      gemm.run(x.args);
      for (int64_t i = 0; i < t.m; ++i) {
        for (int64_t j = 0; j < t.n; ++j) {
          EXPECT_EQ(std::isnan(x.c.at(i, j)), i == 2) << t.text() << " at " << i << ", " << j;
          EXPECT_EQ(std::isinf(x.c.at(i, j)), i != 2 && j == 39) << t.text() << " at " << i << ", " << j;
        }
      }
    }
  }
}

TEST(Gemm, WrongShapesAndDtypesAreBugs) {
  ArenaAllocator workspace(MemoryKind::kWorkspace);
  Threads team(1);
  Gemm gemm(detect_cpu().isa, team, workspace);
  const Case t{.m = 4, .n = 5, .k = 6, .transpose_b = true};
  Operands x(t);
  GemmArgs wrong = x.args;
  wrong.b.cols = 7;
  EXPECT_THROW(gemm.run(wrong), Bug);
  wrong = x.args;
  wrong.b.dtype = DType::kBFloat16;
  EXPECT_THROW(gemm.run(wrong), Bug);
  wrong = x.args;
  wrong.c.dtype = DType::kBFloat16;
  EXPECT_THROW(gemm.run(wrong), Bug);
  wrong = x.args;
  wrong.c.stride = 4;
  EXPECT_THROW(gemm.run(wrong), Bug);
}

}  // namespace
}  // namespace ashlar::cpu
