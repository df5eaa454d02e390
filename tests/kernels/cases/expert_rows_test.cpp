#include <gtest/gtest.h>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

/// Choices of N rows among E experts, of which this rank has [first, first + G).
struct ExpertCase {
  int64_t N, k, E, first, G;
};

enum class Spread { kRandom, kOneExpert, kFewExperts, kAscending, kDescending, kElsewhere };

constexpr std::array<ExpertCase, 12> kSortCases = {
    ExpertCase{1, 1, 1, 0, 1}, {1, 8, 8, 0, 8},        {3, 2, 5, 2, 2},      {33, 3, 7, 0, 7},
    {65, 5, 64, 16, 16},       {130, 7, 257, 0, 257},  {257, 6, 31, 30, 1},  {300, 8, 40, 8, 8},
    {1025, 1, 3, 0, 3},        {2000, 4, 128, 0, 128}, {5000, 2, 16, 4, 12}, {9001, 3, 9, 0, 9}};

/// Choices are different within a row where the spread allows it: slots do not depend on that.
HostMatrix make_expert_choices(const ExpertCase& c, Spread spread) {
  std::mt19937_64 generator(1);
  HostMatrix choices(DType::kInt32, c.N, c.k);
  const int64_t all = c.N * c.k;
  for (int64_t i = 0; i < all; ++i) {
    const auto draw = static_cast<int64_t>(generator() % static_cast<uint64_t>(c.E));
    int64_t expert = draw;
    if (spread == Spread::kOneExpert) expert = c.first + c.G / 2;
    if (spread == Spread::kFewExperts) expert = draw % 5 % c.E;
    if (spread == Spread::kAscending) expert = i * c.E / all;
    if (spread == Spread::kDescending) expert = c.E - 1 - i * c.E / all;
    if (spread == Spread::kElsewhere && c.G < c.E) expert = (c.first + c.G + draw % (c.E - c.G)) % c.E;
    choices.set(i, static_cast<double>(expert));
  }
  return choices;
}

/// Where the choices go: for each expert of this rank, its choices one after another.
struct SortedChoices {
  SortedChoices(const HostMatrix& choices, int64_t first, int64_t G)
      : offsets(1, 0), slots(static_cast<size_t>(choices.rows() * choices.cols()), -1) {
    int32_t next = 0;
    for (int64_t e = first; e < first + G; ++e) {
      for (size_t i = 0; i < slots.size(); ++i)
        if (choices.at(static_cast<int64_t>(i)) == static_cast<double>(e)) slots[i] = next++;
      offsets.push_back(next);
    }
  }
  int64_t count() const { return offsets.back(); }

  Integers offsets, slots;
};

constexpr double kUnwritten = 77777;  // no offset, no slot, and not -1

class ExpertRowsTest : public ::testing::Test {
 protected:
  EveryBackend backends_;

  void expect_sorted(const ExpertCase& c, const HostMatrix& choices) {
    const SortedChoices expected(choices, c.first, c.G);
    backends_.each(
        [&](Backend& backend) {
          Outputs out = {HostMatrix(DType::kInt32, 1, c.G + 1), HostMatrix(DType::kInt32, c.N, c.k)};
          for (HostMatrix& m : out) m.fill(kUnwritten);
          backend.sort_choices(
              {.choices = choices.view(), .offsets = out[0].mut(), .slots = out[1].mut(), .first_expert = c.first},
              backends_.stream());
          return out;
        },
        [&](const Outputs& out) {
          for (int64_t g = 0; g <= c.G; ++g) ASSERT_EQ(out[0].at(g), expected.offsets[static_cast<size_t>(g)]) << g;
          for (int64_t i = 0; i < c.N * c.k; ++i) ASSERT_EQ(out[1].at(i), expected.slots[static_cast<size_t>(i)]) << i;
        });
  }
};

TEST_F(ExpertRowsTest, ChoicesAreSortedStably) {
  for (const ExpertCase& c : kSortCases) {
    for (const Spread spread : {Spread::kRandom, Spread::kOneExpert, Spread::kFewExperts, Spread::kAscending,
                                Spread::kDescending, Spread::kElsewhere}) {
      // Of the long ones, all spreads in the long form only.
      if (c.N > 2000 && spread > Spread::kOneExpert && !ashlar::testing::long_form()) continue;
      SCOPED_TRACE(
          str_cat("N ", c.N, " k ", c.k, " E ", c.E, " from ", c.first, ", spread ", static_cast<int>(spread)));
      expect_sorted(c, make_expert_choices(c, spread));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ExpertRowsTest, SortByHand) {
  const ExpertCase c{4, 2, 6, 2, 3};  // experts 2, 3 and 4
  HostMatrix choices(DType::kInt32, 4, 2), slots(DType::kInt32, 4, 2), offsets(DType::kInt32, 1, 4);
  const auto set = [](HostMatrix& m, const std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i) m.set(static_cast<int64_t>(i), values[i]);
  };
  set(choices, {4, 2, 5, 4, 2, 0, 1, 2});
  set(slots, {3, 0, -1, 4, 1, -1, -1, 2});
  set(offsets, {0, 3, 3, 5});
  backends_.each(
      [&](Backend& backend) {
        Outputs out = {HostMatrix(DType::kInt32, 1, 4), HostMatrix(DType::kInt32, 4, 2)};
        for (HostMatrix& m : out) m.fill(kUnwritten);
        backend.sort_choices(
            {.choices = choices.view(), .offsets = out[0].mut(), .slots = out[1].mut(), .first_expert = c.first},
            backends_.stream());
        return out;
      },
      [&](const Outputs& out) { EXPECT_TRUE(out[0] == offsets && out[1] == slots); });
}

TEST_F(ExpertRowsTest, NoRowsHaveNoSlots) {
  const ExpertCase c{0, 2, 5, 1, 3};
  expect_sorted(c, HostMatrix(DType::kInt32, 0, 2));
  const HostMatrix x(DType::kFloat32, 0, 9), slots(DType::kInt32, 0, 2);
  const Integers offsets(4, 0);
  backends_.each(
      [&](Backend& backend) {
        Outputs out = {HostMatrix(DType::kFloat32, 3, 9, 1)};
        backend.dispatch_rows({.x = x.view(), .slots = slots.view(), .offsets = view_of(offsets), .rows = out[0].mut()},
                              backends_.stream());
        return out;
      },
      [](const Outputs& out) {
        for (int64_t i = 0; i < 27; ++i) EXPECT_EQ(out[0].at(i), 0) << i;
      });
}

/// Rows of C columns, and room for `surplus` more slots than choices need.
struct RowsCase {
  ExpertCase choices;
  int64_t C, surplus;
};

constexpr std::array<RowsCase, 11> kRowsCases = {
    RowsCase{{1, 1, 1, 0, 1}, 1, 0}, {{3, 2, 5, 0, 5}, 3, 1},    {{5, 8, 9, 4, 3}, 31, 4},
    {{33, 3, 7, 0, 7}, 33, 0},       {{17, 4, 6, 2, 2}, 64, 40}, {{9, 5, 12, 3, 6}, 257, 3},
    {{13, 6, 8, 0, 8}, 128, 2},      {{40, 7, 11, 0, 4}, 48, 5}, {{5, 2, 4, 1, 2}, 768, 3},
    {{200, 2, 16, 4, 8}, 40, 9},     {{6, 1, 3, 2, 1}, 1030, 1}};

/// What dispatch_rows and combine_rows read, with NaN wherever they must not.
struct RowsProblem {
  RowsProblem(DType type, const RowsCase& c, Spread spread = Spread::kRandom)
      : dtype(type),
        acc(accumulate_dtype(type)),
        N(c.choices.N),
        k(c.choices.k),
        C(c.C),
        sorted(make_expert_choices(c.choices, spread), c.choices.first, c.choices.G),
        S(sorted.count() + c.surplus),
        slots(DType::kInt32, N, k),
        weights(random_matrix(acc, N, k, 1)),
        of_rows(random_matrix(type, N, C, 2, 2)),
        of_slots(random_matrix(type, S, C, 3, 1)) {
    for (int64_t i = 0; i < N * k; ++i) {
      slots.set(i, sorted.slots[static_cast<size_t>(i)]);
      if (slots.at(i) < 0) weights.set(i, std::nan(""));  // of an expert elsewhere
    }
    for (int64_t s = sorted.count(); s < S; ++s)
      for (int64_t c1 = 0; c1 < C; ++c1) of_slots.set(s, c1, std::nan(""));
  }

  int64_t slot(int64_t n, int64_t j) const { return static_cast<int64_t>(slots.at(n, j)); }
  /// What is compared with dots: a row times the row of its slot.
  void expect_dots(const HostMatrix& dots) const {
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t j = 0; j < k; ++j) {
        double sum = 0, size = 0;
        for (int64_t c = 0; c < C && slot(n, j) >= 0; ++c) {
          const double term = of_rows.at(n, c) * of_slots.at(slot(n, j), c);
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(dots.at(n, j), sum, tolerance(acc, C, size)) << n << " " << j;
      }
    }
  }

  DType dtype, acc;
  int64_t N, k, C;
  SortedChoices sorted;
  int64_t S;
  HostMatrix slots, weights;
  HostMatrix of_rows, of_slots;  ///< [N, C], [S, C]
};

struct RowsOptions {
  bool weights, dots;
};
constexpr std::array<RowsOptions, 4> kRowsOptions = {
    RowsOptions{false, false}, {false, true}, {true, false}, {true, true}};

class RowsOfSlotsTest : public ::testing::Test {
 protected:
  EveryBackend backends_;

  /// {rows, dots}: rows and dots hold NaN before.
  Outputs dispatch(Backend& backend, const RowsProblem& p, const RowsOptions& with) {
    Outputs out = {HostMatrix(p.dtype, p.S, p.C, 3), HostMatrix(p.acc, p.N, p.k)};
    backend.dispatch_rows({.x = p.of_rows.view(),
                           .slots = p.slots.view(),
                           .offsets = view_of(p.sorted.offsets),
                           .weights = with.weights ? p.weights.view() : ConstView{},
                           .others = with.dots ? p.of_slots.view() : ConstView{},
                           .rows = out[0].mut(),
                           .dots = with.dots ? out[1].mut() : MutView{}},
                          backends_.stream());
    return out;
  }
  /// {y, dots}.
  Outputs combine(Backend& backend, const RowsProblem& p, const RowsOptions& with, const HostMatrix& before,
                  GradMode mode) {
    Outputs out = {before, HostMatrix(p.acc, p.N, p.k)};
    backend.combine_rows({.rows = p.of_slots.view(),
                          .slots = p.slots.view(),
                          .weights = with.weights ? p.weights.view() : ConstView{},
                          .others = with.dots ? p.of_rows.view() : ConstView{},
                          .y = out[0].mut(),
                          .dots = with.dots ? out[1].mut() : MutView{},
                          .mode = mode},
                         backends_.stream());
    return out;
  }
  void expect_dispatched(const RowsProblem& p, const RowsOptions& with);
  void expect_combined(const RowsProblem& p, const RowsOptions& with, GradMode mode);

  template <typename F>
  void for_each_problem(const F& f) {
    for (const DType dtype : kStorageDTypes) {
      for (const RowsCase& c : kRowsCases) {
        for (const RowsOptions& with : kRowsOptions) {
          SCOPED_TRACE(str_cat(name_of(dtype), " N ", c.choices.N, " k ", c.choices.k, " C ", c.C, " weights ",
                               with.weights, " dots ", with.dots));
          f(RowsProblem(dtype, c), with);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
};

void RowsOfSlotsTest::expect_dispatched(const RowsProblem& p, const RowsOptions& with) {
  backends_.each([&](Backend& backend) { return dispatch(backend, p, with); },
                 [&](const Outputs& out) {
                   for (int64_t n = 0; n < p.N; ++n) {
                     for (int64_t j = 0; j < p.k; ++j) {
                       const int64_t s = p.slot(n, j);
                       for (int64_t c = 0; c < p.C && s >= 0; ++c) {
                         const double x = p.of_rows.at(n, c), w = with.weights ? p.weights.at(n, j) : 1;
                         const double allowed = with.weights ? tolerance(p.dtype, 1, std::abs(w * x)) : 0;
                         ASSERT_NEAR(out[0].at(s, c), w * x, allowed) << n << " " << j << " " << c;
                       }
                     }
                   }
                   for (int64_t s = p.sorted.count(); s < p.S; ++s)
                     for (int64_t c = 0; c < p.C; ++c)
                       ASSERT_EQ(out[0].at(s, c), 0) << "surplus slot " << s << " " << c;
                   if (with.dots) {
                     p.expect_dots(out[1]);
                   } else {
                     EXPECT_TRUE(out[1] == HostMatrix(p.acc, p.N, p.k));
                   }
                 });
}

TEST_F(RowsOfSlotsTest, DispatchCopiesRowsToTheirSlots) {
  for_each_problem([&](const RowsProblem& p, const RowsOptions& with) { expect_dispatched(p, with); });
}

void RowsOfSlotsTest::expect_combined(const RowsProblem& p, const RowsOptions& with, GradMode mode) {
  const bool accumulate = mode == GradMode::kAccumulate;
  const HostMatrix before =
      mode == GradMode::kOverwrite ? HostMatrix(p.dtype, p.N, p.C, 3) : random_matrix(p.dtype, p.N, p.C, 4, 3);
  backends_.each([&](Backend& backend) { return combine(backend, p, with, before, mode); },
                 [&](const Outputs& out) {
                   if (mode == GradMode::kSkip) {
                     EXPECT_TRUE(out[0] == before);
                     EXPECT_TRUE(out[1] == HostMatrix(p.acc, p.N, p.k));
                     return;
                   }
                   for (int64_t n = 0; n < p.N; ++n) {
                     for (int64_t c = 0; c < p.C; ++c) {
                       double sum = accumulate ? before.at(n, c) : 0, size = std::abs(sum);
                       for (int64_t j = 0; j < p.k; ++j) {
                         if (p.slot(n, j) < 0) continue;
                         const double term = (with.weights ? p.weights.at(n, j) : 1) * p.of_slots.at(p.slot(n, j), c);
                         sum += term;
                         size += std::abs(term);
                       }
                       // The sum has one rounding of the storage dtype, of itself and not of its terms.
                       const double allowed =
                           tolerance(p.acc, p.k, size) + unit_roundoff(p.dtype) * std::abs(sum) * 1.01;
                       ASSERT_NEAR(out[0].at(n, c), sum, allowed) << n << " " << c;
                     }
                   }
                   if (with.dots) {
                     p.expect_dots(out[1]);
                   } else {
                     EXPECT_TRUE(out[1] == HostMatrix(p.acc, p.N, p.k));
                   }
                 });
}

TEST_F(RowsOfSlotsTest, CombineAddsTheRowsOfSlots) {
  for_each_problem([&](const RowsProblem& p, const RowsOptions& with) {
    expect_combined(p, with, GradMode::kOverwrite);
    expect_combined(p, with, GradMode::kAccumulate);
    if (p.N == 33) expect_combined(p, with, GradMode::kSkip);
  });
}

// All choices at one expert, and none on this rank: with surplus slots, and with no slot at all.
TEST_F(RowsOfSlotsTest, OneExpertAndNone) {
  for (const DType dtype : kStorageDTypes) {
    for (const RowsOptions& with : kRowsOptions) {
      const RowsProblem one(dtype, {{21, 2, 9, 3, 4}, 40, 3}, Spread::kOneExpert);
      expect_dispatched(one, with);
      expect_combined(one, with, GradMode::kOverwrite);
      const RowsProblem none(dtype, {{21, 2, 9, 3, 4}, 33, 5}, Spread::kElsewhere);
      ASSERT_EQ(none.sorted.count(), 0);
      expect_dispatched(none, with);
      for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate}) expect_combined(none, with, mode);
      if (HasFatalFailure()) return;
    }
    const RowsProblem empty(dtype, {{21, 2, 9, 3, 4}, 33, 0}, Spread::kElsewhere);
    expect_dispatched(empty, {});
    expect_combined(empty, {}, GradMode::kOverwrite);
  }
}

// NaN in one row reaches its slots, its dots and its result, and nothing else.
TEST_F(RowsOfSlotsTest, RowsStayApart) {
  RowsProblem p(DType::kFloat32, {{9, 2, 4, 0, 4}, 33, 2});
  for (int64_t c = 0; c < p.C; ++c) {
    p.of_rows.set(3, c, std::nan(""));
    p.of_slots.set(p.slot(5, 1), c, std::nan(""));
  }
  const auto in_row = [](const HostMatrix& m, int64_t r) {
    int64_t count = 0;
    for (int64_t c = 0; c < m.cols(); ++c) count += std::isnan(m.at(r, c));
    return count;
  };
  backends_.each(
      [&](Backend& backend) {
        Outputs out = dispatch(backend, p, {true, true});
        for (HostMatrix& m : combine(backend, p, {true, true}, HostMatrix(p.dtype, p.N, p.C), GradMode::kOverwrite))
          out.push_back(std::move(m));
        backends_.finish();
        for (HostMatrix& m : out) m = with_one_nan(m);
        return out;
      },
      [&](const Outputs& out) {
        for (int64_t n = 0; n < p.N; ++n) {
          for (int64_t j = 0; j < p.k; ++j) {
            EXPECT_EQ(in_row(out[0], p.slot(n, j)), n == 3 ? p.C : 0) << n << " " << j;
            for (const size_t dots : {1U, 3U})
              EXPECT_EQ(std::isnan(out[dots].at(n, j)), n == 3 || (n == 5 && j == 1)) << n << " " << j;
          }
          EXPECT_EQ(in_row(out[2], n), n == 5 ? p.C : 0) << n;
        }
      });
}

/// Combines rows of one column, whose values are given for each choice.
class CombineOrderTest : public RowsOfSlotsTest {
 protected:
  void expect_sum(DType dtype, const std::vector<double>& values, double expected, double before, GradMode mode) {
    const auto k = std::ssize(values);
    HostMatrix rows(dtype, k, 1), slots(DType::kInt32, 1, k);
    // Slots descend, as they do where later choices have lower experts: the order is that of choices.
    for (int64_t j = 0; j < k; ++j) {
      rows.set(k - 1 - j, 0, values[static_cast<size_t>(j)]);
      slots.set(j, static_cast<double>(k - 1 - j));
    }
    backends_.each(
        [&](Backend& backend) {
          Outputs out = {HostMatrix(dtype, 1, 1)};
          out[0].set(0, before);
          backend.combine_rows({.rows = rows.view(), .slots = slots.view(), .y = out[0].mut(), .mode = mode},
                               backends_.stream());
          return out;
        },
        [&](const Outputs& out) { EXPECT_EQ(out[0].at(0), expected) << name_of(dtype); });
  }
};

TEST_F(CombineOrderTest, InAscendingChoicesWithOneRounding) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const double big = 1 / unit_roundoff(dtype);  // big + 1 is big
    expect_sum(dtype, {big, 1, -big}, 0, 5, GradMode::kOverwrite);
    expect_sum(dtype, {big, -big, 1}, 1, 5, GradMode::kOverwrite);
    expect_sum(dtype, {1, big, -big}, 0, 5, GradMode::kOverwrite);
    expect_sum(dtype, {big, 1, 1, -big}, 0, 5, GradMode::kOverwrite);
  }
  // 256 + 1 is 256 in bf16.
  expect_sum(DType::kBFloat16, {256, 1, 1, 1, 1, 1, 1, 2}, 264, 5, GradMode::kOverwrite);
  expect_sum(DType::kBFloat16, {1, 1, 1, 1, 1, 1, 1, 1}, 264, 256, GradMode::kAccumulate);
  expect_sum(DType::kBFloat16, {1, 0x1p-8}, 258, 256, GradMode::kAccumulate);  // not 256 + 1
}

/// <dispatch(x), r> = <x, combine(r)>, and both give the same gradient of the weights.
TEST_F(RowsOfSlotsTest, CombineIsTheAdjointOfDispatch) {
  for (const RowsOptions& with : {RowsOptions{false, true}, RowsOptions{true, true}}) {
    const RowsProblem p(DType::kFloat64, {{57, 3, 8, 2, 5}, 33, 4});
    backends_.each(
        [&](Backend& backend) {
          Outputs out = dispatch(backend, p, with);
          for (HostMatrix& m : combine(backend, p, with, HostMatrix(p.dtype, p.N, p.C), GradMode::kOverwrite))
            out.push_back(std::move(m));
          backends_.finish();
          return out;
        },
        [&](const Outputs& out) {
          double forward = 0, backward = 0, size = 0;
          for (int64_t i = 0; i < p.sorted.count() * p.C; ++i) {
            forward += out[0].at(i) * p.of_slots.at(i);
            size += std::abs(out[0].at(i) * p.of_slots.at(i));
          }
          for (int64_t i = 0; i < p.N * p.C; ++i) backward += out[2].at(i) * p.of_rows.at(i);
          EXPECT_NEAR(forward, backward, tolerance(DType::kFloat64, p.S * p.C, size));
          EXPECT_GT(std::abs(forward), 1e-3 * size) << "says little";
          p.expect_dots(out[1]);
          p.expect_dots(out[3]);
        });
  }
}

TEST_F(ExpertRowsTest, ViolationsOfSortAreBugs) {
  const HostMatrix choices = make_expert_choices({5, 2, 4, 0, 4}, Spread::kRandom), gaps(DType::kInt32, 5, 2, 1);
  HostMatrix slots(DType::kInt32, 5, 2), slot_gaps = gaps, fewer(DType::kInt32, 4, 2), fp32(DType::kFloat32, 5, 2);
  Integers offsets(5), fp32_offsets(5);
  const auto call = [&](const auto& change) {
    SortChoices args{
        .choices = choices.view(), .offsets = {offsets.data(), DType::kInt32, 1, 5, 5}, .slots = slots.mut()};
    change(args);
    backends_.one().sort_choices(args, backends_.stream());
    backends_.finish();
  };
  using Args = SortChoices;
  EXPECT_NO_THROW(call([](Args&) {}));
  EXPECT_THROW(call([&](Args& a) { a.choices = gaps.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.choices = fp32.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.choices = {}; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.offsets.cols = a.offsets.stride = 1; }), Bug) << "no group";
  EXPECT_THROW(call([&](Args& a) { a.offsets.dtype = DType::kFloat32; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.offsets = {}; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.slots = slot_gaps.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.slots = fewer.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.first_expert = -1; }), Bug);
}

TEST_F(RowsOfSlotsTest, ViolationsAreBugs) {
  const RowsProblem p(DType::kBFloat16, {{5, 2, 4, 0, 4}, 8, 2});
  HostMatrix rows(p.dtype, p.S, 8), y(p.dtype, 5, 8), dots(p.acc, 5, 2), dot_gaps(p.acc, 5, 2, 1),
      narrow(p.dtype, p.S, 7);
  HostMatrix fp32_rows(DType::kFloat32, p.S, 8), bf16_dots(p.dtype, 5, 2), few_rows(p.dtype, p.S - 1, 8);
  HostMatrix fp32_y(DType::kFloat32, 5, 8), narrow_y(p.dtype, 5, 7);
  const HostMatrix gaps(DType::kInt32, 5, 2, 1), fewer(DType::kInt32, 4, 2);
  const auto call = [&](const auto& change) {
    DispatchRows d{.x = p.of_rows.view(),
                   .slots = p.slots.view(),
                   .offsets = view_of(p.sorted.offsets),
                   .weights = p.weights.view(),
                   .others = p.of_slots.view(),
                   .rows = rows.mut(),
                   .dots = dots.mut()};
    CombineRows c{.rows = p.of_slots.view(),
                  .slots = p.slots.view(),
                  .weights = p.weights.view(),
                  .others = p.of_rows.view(),
                  .y = y.mut(),
                  .dots = dots.mut()};
    if constexpr (requires { change(d); }) {
      change(d);
      backends_.one().dispatch_rows(d, backends_.stream());
    } else {
      change(c);
      backends_.one().combine_rows(c, backends_.stream());
    }
    backends_.finish();
  };
  using Dispatch = DispatchRows;
  EXPECT_NO_THROW(call([](Dispatch&) {}));
  EXPECT_THROW(call([&](Dispatch& a) { a.slots = gaps.view(); }), Bug);
  EXPECT_THROW(call([&](Dispatch& a) { a.slots = fewer.view(); }), Bug);
  EXPECT_THROW(call([&](Dispatch& a) { a.offsets.dtype = DType::kFloat32; }), Bug);
  EXPECT_THROW(call([&](Dispatch& a) { a.offsets.cols = a.offsets.stride = 1; }), Bug);
  EXPECT_THROW(call([&](Dispatch& a) { a.weights = bf16_dots.view(); }), Bug);
  EXPECT_THROW(call([&](Dispatch& a) { a.weights = dot_gaps.view(); }), Bug);
  EXPECT_THROW(call([&](Dispatch& a) { a.rows = narrow.mut(); }), Bug);
  EXPECT_THROW(call([&](Dispatch& a) { a.rows = fp32_rows.mut(); }), Bug);
  EXPECT_THROW(call([&](Dispatch& a) { a.others = {}; }), Bug) << "dots alone";
  EXPECT_THROW(call([&](Dispatch& a) { a.dots = {}; }), Bug) << "others alone";
  EXPECT_THROW(call([&](Dispatch& a) { a.others = few_rows.view(); }), Bug);
  EXPECT_THROW(call([&](Dispatch& a) { a.dots = bf16_dots.mut(); }), Bug);
  EXPECT_THROW(call([&](Dispatch& a) { a.dots = dot_gaps.mut(); }), Bug);
  using Combine = CombineRows;
  EXPECT_NO_THROW(call([](Combine&) {}));
  EXPECT_THROW(call([&](Combine& a) { a.slots = gaps.view(); }), Bug);
  EXPECT_THROW(call([&](Combine& a) { a.slots = fewer.view(); }), Bug);
  EXPECT_THROW(call([&](Combine& a) { a.weights = bf16_dots.view(); }), Bug);
  EXPECT_THROW(call([&](Combine& a) { a.weights = dot_gaps.view(); }), Bug);
  EXPECT_THROW(call([&](Combine& a) { a.y = narrow_y.mut(); }), Bug);
  EXPECT_THROW(call([&](Combine& a) { a.y = fp32_y.mut(); }), Bug);
  EXPECT_THROW(call([&](Combine& a) { a.others = {}; }), Bug) << "dots alone";
  EXPECT_THROW(call([&](Combine& a) { a.dots = {}; }), Bug) << "others alone";
  EXPECT_THROW(call([&](Combine& a) { a.others = narrow_y.view(); }), Bug);
  EXPECT_THROW(call([&](Combine& a) { a.dots = bf16_dots.mut(); }), Bug);
}

}  // namespace
}  // namespace ashlar::test
