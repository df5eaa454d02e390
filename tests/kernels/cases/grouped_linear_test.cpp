#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

struct GroupedCase {
  std::vector<int64_t> rows;  ///< of each group
  int64_t surplus, K, M;      ///< rows behind the last group
};

/// Sizes of no tile, groups of one row and of none at each end and between, and one group that has everything.
std::vector<GroupedCase> grouped_cases() {
  std::vector<GroupedCase> cases = {{{1}, 0, 1, 1},          {{3, 0, 5}, 2, 3, 5},       {{0, 0, 7, 1, 0}, 3, 33, 31},
                                    {{0, 40, 0}, 0, 64, 48}, {{1, 1, 1, 1}, 1, 17, 130}, {{29, 0, 64, 3}, 5, 97, 48},
                                    {{130}, 0, 31, 1},       {{70, 0, 66}, 7, 1, 65},    {{5, 130, 2}, 9, 300, 33},
                                    {{20, 13}, 0, 33, 300},  {{0, 0}, 4, 8, 8},          {{65, 129}, 140, 32, 64}};
  GroupedCase many{{}, 6, 16, 24};
  for (int64_t g = 0; g < 40; ++g) many.rows.push_back(g * g % 5);
  cases.push_back(many);
  return cases;
}

/// What the products read. It is NaN in the rows of no group and in the weights of groups without rows.
struct GroupedProblem {
  GroupedProblem(DType type, const GroupedCase& c)
      : dtype(type),
        acc(accumulate_dtype(type)),
        G(std::ssize(c.rows)),
        K(c.K),
        M(c.M),
        used(std::accumulate(c.rows.begin(), c.rows.end(), int64_t{0})),
        S(used + c.surplus),
        x(random_matrix(type, S, K, 1, 3)),
        dy(random_matrix(type, S, M, 2, 1)),
        w(random_matrix(type, G * M, K, 3)),
        bias(random_matrix(type, 1, G * M, 4)),
        offsets(1, 0) {
    for (const int64_t rows : c.rows) {
      const int64_t g = std::ssize(offsets) - 1;
      for (int64_t s = 0; s < rows; ++s) group.push_back(g);
      if (rows == 0) {
        fill_rows(w, g * M, (g + 1) * M, std::nan(""));
        for (int64_t m = 0; m < M; ++m) bias.set(g * M + m, std::nan(""));
      }
      offsets.push_back(offsets.back() + static_cast<int32_t>(rows));
    }
    fill_rows(x, used, S, std::nan(""));
    fill_rows(dy, used, S, std::nan(""));
  }

  static void fill_rows(HostMatrix& m, int64_t first, int64_t last, double value) {
    for (int64_t r = first; r < last; ++r)
      for (int64_t c = 0; c < m.cols(); ++c) m.set(r, c, value);
  }

  DType dtype, acc;
  int64_t G, K, M, used, S;
  HostMatrix x, dy, w, bias;
  Integers offsets;
  std::vector<int64_t> group;  ///< of each row
};

/// A sum of products that is compared within the bound of a recursive sum in the accumulate type and one store.
struct GroupedSum {
  explicit GroupedSum(double start = 0) : value(start), size(std::abs(start)) {}
  void add(double term) {
    value += term;
    size += std::abs(term);
    ++terms;
  }
  double bound(DType acc, DType result) const {
    return 1.01 * (unit_roundoff(acc) * (terms + 4) * size + unit_roundoff(result) * std::abs(value)) + 1e-300;
  }

  double value, size, terms = 0;
};

/// The three products as a backend computes them.
class GroupedProducts {
 public:
  GroupedProducts(Backend& backend, Stream& stream) : backend_(backend), stream_(stream) {}

  HostMatrix forward(const GroupedProblem& p, bool with_bias) {
    HostMatrix y(p.dtype, p.S, p.M, 2);
    backend_.grouped_linear_forward({.x = p.x.view(),
                                     .w = p.w.view(),
                                     .bias = with_bias ? p.bias.view() : ConstView{},
                                     .offsets = view_of(p.offsets),
                                     .y = y.mut()},
                                    stream_);
    stream_.synchronize();
    return y;
  }
  HostMatrix backward_input(const GroupedProblem& p) {
    HostMatrix dx(p.dtype, p.S, p.K, 1);
    backend_.grouped_linear_backward_input(
        {.dy = p.dy.view(), .w = p.w.view(), .offsets = view_of(p.offsets), .dx = dx.mut()}, stream_);
    stream_.synchronize();
    return dx;
  }
  /// Adds to or overwrites dw and dbias; what is an empty matrix is absent.
  void backward_weight(const GroupedProblem& p, HostMatrix& dw, HostMatrix& dbias, GradMode mode) {
    backend_.grouped_linear_backward_weight({.dy = p.dy.view(),
                                             .x = p.x.view(),
                                             .offsets = view_of(p.offsets),
                                             .dw = dw.mut(),
                                             .dbias = dbias.mut(),
                                             .mode = mode},
                                            stream_);
    stream_.synchronize();
  }
  /// {y, dx, dw, dbias}
  Outputs all(const GroupedProblem& p) {
    Outputs out = {forward(p, true), backward_input(p), HostMatrix(p.acc, p.G * p.M, p.K),
                   HostMatrix(p.acc, 1, p.G * p.M)};
    backward_weight(p, out[2], out[3], GradMode::kOverwrite);
    return out;
  }

 private:
  Backend& backend_;
  Stream& stream_;
};

class GroupedLinearOn : public ::testing::TestWithParam<std::tuple<BackendUnderTest, DType>> {
 protected:
  GroupedLinearOn()
      : backend_(std::get<0>(GetParam()).make()), stream_(backend_->make_stream()), storage_(std::get<1>(GetParam())) {}

  template <typename F>
  void for_each_case(const F& f) {
    int64_t problem = 0;
    for (const GroupedCase& c : grouped_cases()) {
      if (!std::get<0>(GetParam()).gets(problem++)) continue;
      SCOPED_TRACE(str_cat(c.rows.size(), " groups, first of ", c.rows[0], " rows, surplus ", c.surplus, ", K ", c.K,
                           ", M ", c.M));
      f(GroupedProblem(storage_, c));
      if (HasFatalFailure()) return;
    }
  }
  void expect_rows(const GroupedProblem& p, const HostMatrix& got,
                   const std::function<GroupedSum(int64_t, int64_t)>& sum);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  DType storage_;
  GroupedProducts products_{*backend_, *stream_};
};

/// The rows of groups are sums, the others are zero.
void GroupedLinearOn::expect_rows(const GroupedProblem& p, const HostMatrix& got,
                                  const std::function<GroupedSum(int64_t, int64_t)>& sum) {
  EXPECT_TRUE(got.padding_untouched());
  for (int64_t s = 0; s < p.S; ++s) {
    for (int64_t c = 0; c < got.cols(); ++c) {
      if (s >= p.used) {
        ASSERT_EQ(got.at(s, c), 0) << "row " << s << " of no group, column " << c;
        continue;
      }
      const GroupedSum expected = sum(s, c);
      ASSERT_NEAR(got.at(s, c), expected.value, expected.bound(p.acc, p.dtype)) << "row " << s << ", column " << c;
    }
  }
}

TEST_P(GroupedLinearOn, ForwardMultipliesRowsByTheWeightOfTheirGroup) {
  for_each_case([&](const GroupedProblem& p) {
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(str_cat("bias ", with_bias));
      expect_rows(p, products_.forward(p, with_bias), [&](int64_t s, int64_t m) {
        const int64_t row = p.group[static_cast<size_t>(s)] * p.M + m;
        GroupedSum sum(with_bias ? p.bias.at(row) : 0);
        for (int64_t k = 0; k < p.K; ++k) sum.add(p.x.at(s, k) * p.w.at(row, k));
        return sum;
      });
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(GroupedLinearOn, BackwardInputMultipliesByTheTransposedWeight) {
  for_each_case([&](const GroupedProblem& p) {
    expect_rows(p, products_.backward_input(p), [&](int64_t s, int64_t k) {
      const int64_t first = p.group[static_cast<size_t>(s)] * p.M;
      GroupedSum sum;
      for (int64_t m = 0; m < p.M; ++m) sum.add(p.dy.at(s, m) * p.w.at(first + m, k));
      return sum;
    });
  });
}

TEST_P(GroupedLinearOn, BackwardWeightSumsOverTheRowsOfAGroup) {
  for_each_case([&](const GroupedProblem& p) {
    const HostMatrix dw_before = random_matrix(p.acc, p.G * p.M, p.K, 5);
    const HostMatrix dbias_before = random_matrix(p.acc, 1, p.G * p.M, 6);
    for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate}) {
      const bool accumulate = mode == GradMode::kAccumulate;
      HostMatrix dw = accumulate ? dw_before : HostMatrix(p.acc, p.G * p.M, p.K);
      HostMatrix dbias = accumulate ? dbias_before : HostMatrix(p.acc, 1, p.G * p.M);
      products_.backward_weight(p, dw, dbias, mode);
      for (int64_t row = 0; row < p.G * p.M; ++row) {
        const auto g = static_cast<size_t>(row / p.M);
        const int64_t m = row % p.M;
        const bool empty = p.offsets[g] == p.offsets[g + 1];
        const auto compare = [&](double got, double before, const auto& term) {
          GroupedSum sum(accumulate ? before : 0);
          for (int64_t s = p.offsets[g]; s < p.offsets[g + 1]; ++s) sum.add(term(s));
          // Of an empty group, exactly what was there, or zero.
          ASSERT_NEAR(got, sum.value, empty ? 0 : sum.bound(p.acc, p.acc)) << "group " << g << ", row " << m;
        };
        for (int64_t k = 0; k < p.K; ++k)
          compare(dw.at(row, k), dw_before.at(row, k), [&](int64_t s) { return p.dy.at(s, m) * p.x.at(s, k); });
        compare(dbias.at(row), dbias_before.at(row), [&](int64_t s) { return p.dy.at(s, m); });
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST_P(GroupedLinearOn, ModesAndAbsentViewsAreObeyed) {
  const GroupedProblem p(storage_, {{4, 0, 9}, 2, 6, 7});
  const HostMatrix dw_before = random_matrix(p.acc, 21, 6, 5), dbias_before = random_matrix(p.acc, 1, 21, 6);
  HostMatrix dw = dw_before, dbias = dbias_before, absent;
  products_.backward_weight(p, dw, dbias, GradMode::kSkip);
  EXPECT_TRUE(dw == dw_before && dbias == dbias_before);
  for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate}) {
    HostMatrix both_dw = dw_before, both_dbias = dbias_before, only_dw = dw_before, only_dbias = dbias_before;
    products_.backward_weight(p, both_dw, both_dbias, mode);
    products_.backward_weight(p, only_dw, absent, mode);
    products_.backward_weight(p, absent, only_dbias, mode);
    EXPECT_TRUE(only_dw == both_dw && only_dbias == both_dbias);
    EXPECT_FALSE(both_dw == dw_before || both_dbias == dbias_before);
    products_.backward_weight(p, absent, absent, mode);
  }
}

TEST_P(GroupedLinearOn, NoRows) {
  const GroupedProblem p(storage_, {{0, 0, 0}, 0, 6, 7});
  EXPECT_FALSE(products_.forward(p, true).present() || products_.backward_input(p).present());
  for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate}) {
    HostMatrix dw = random_matrix(p.acc, 21, 6, 5), dbias = random_matrix(p.acc, 1, 21, 6);
    const HostMatrix dw_before = dw, dbias_before = dbias;
    products_.backward_weight(p, dw, dbias, mode);
    const bool kept = mode == GradMode::kAccumulate;
    for (int64_t i = 0; i < 21 * 6; ++i) EXPECT_EQ(dw.at(i), kept ? dw_before.at(i) : 0);
    for (int64_t i = 0; i < 21; ++i) EXPECT_EQ(dbias.at(i), kept ? dbias_before.at(i) : 0);
  }
}

// A row that is not finite is seen in its own results, and in the weight gradients of its group, alone.
TEST_P(GroupedLinearOn, GroupsStayApart) {
  const GroupedProblem clean(storage_, {{19, 3, 30}, 1, 40, 36});
  GroupedProblem p = clean;
  const int64_t first = p.offsets[1], last = p.offsets[2];
  GroupedProblem::fill_rows(p.x, first, last, std::nan(""));
  GroupedProblem::fill_rows(p.dy, first, last, std::nan(""));
  const Outputs expected = products_.all(clean), got = products_.all(p);
  for (const size_t rows : {0U, 1U}) {
    for (int64_t s = 0; s < p.S; ++s) {
      for (int64_t c = 0; c < got[rows].cols(); ++c) {
        const double value = got[rows].at(s, c);
        ASSERT_TRUE(s >= first && s < last ? std::isnan(value) : value == expected[rows].at(s, c)) << s << " " << c;
      }
    }
  }
  for (int64_t row = 0; row < p.G * p.M; ++row) {
    const bool of_group = row / p.M == 1;
    ASSERT_TRUE(of_group ? std::isnan(got[3].at(row)) : got[3].at(row) == expected[3].at(row)) << row;
    for (int64_t k = 0; k < p.K; ++k)
      ASSERT_TRUE(of_group ? std::isnan(got[2].at(row, k)) : got[2].at(row, k) == expected[2].at(row, k)) << row;
  }
}

// Groups of the same rows and weights, at places that no tile divides, have the same results to the bit, and so has a
// second call.
TEST_P(GroupedLinearOn, EqualGroupsAtDifferentPlacesGiveEqualBits) {
  for (const auto& [rows, K, M] : {std::array<int64_t, 3>{3, 40, 33}, {37, 96, 64}, {70, 130, 31}}) {
    SCOPED_TRACE(str_cat("groups of ", rows, " rows, K ", K, ", M ", M));
    GroupedProblem p(storage_, {{rows, 5, rows, 0, rows}, 3, K, M});
    for (const int64_t g : {2, 4}) {
      const auto offset = static_cast<int64_t>(p.offsets[static_cast<size_t>(g)]);
      for (int64_t s = 0; s < rows; ++s) {
        for (int64_t k = 0; k < K; ++k) p.x.set(offset + s, k, p.x.at(s, k));
        for (int64_t m = 0; m < M; ++m) p.dy.set(offset + s, m, p.dy.at(s, m));
      }
      for (int64_t m = 0; m < M; ++m) {
        for (int64_t k = 0; k < K; ++k) p.w.set(g * M + m, k, p.w.at(m, k));
        p.bias.set(g * M + m, p.bias.at(m));
      }
    }
    const Outputs out = products_.all(p);
    EXPECT_TRUE(out == products_.all(p)) << "not the same bits";
    for (const int64_t g : {2, 4}) {
      const auto offset = static_cast<int64_t>(p.offsets[static_cast<size_t>(g)]);
      for (const size_t of_rows : {0U, 1U}) {
        for (int64_t s = 0; s < rows; ++s)
          for (int64_t c = 0; c < out[of_rows].cols(); ++c)
            ASSERT_EQ(out[of_rows].at(offset + s, c), out[of_rows].at(s, c)) << g << " " << s << " " << c;
      }
      for (int64_t m = 0; m < M; ++m) {
        ASSERT_EQ(out[3].at(g * M + m), out[3].at(m)) << g << " " << m;
        for (int64_t k = 0; k < K; ++k) ASSERT_EQ(out[2].at(g * M + m, k), out[2].at(m, k)) << g << " " << m;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, GroupedLinearOn,
                         ::testing::Combine(::testing::ValuesIn(backends_under_test()),
                                            ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat64)),
                         [](const auto& at) {
                           return str_cat(std::get<0>(at.param).name, "_", name_of(std::get<1>(at.param)));
                         });

class GroupedLinearTest : public ::testing::Test {
 protected:
  EveryBackend backends_;
};

// Whatever the number of threads, and the order in which blocks run.
TEST_F(GroupedLinearTest, BackendsOfOneKindGiveTheSameBits) {
  for (const DType dtype : kStorageDTypes) {
    const GroupedProblem p(dtype, {{50, 0, 9, 77, 1}, 4, 70, 90});
    backends_.each([&](Backend& backend) { return GroupedProducts(backend, backends_.stream()).all(p); },
                   [](const Outputs&) {});
  }
}

/// <forward(x), dy> = <x, backward_input(dy)> = <w, backward_weight(dy, x)>, without a bias.
TEST_F(GroupedLinearTest, BackwardIsTheAdjointOfForward) {
  GroupedProblem p(DType::kFloat64, {{7, 0, 30, 1}, 0, 21, 34});
  GroupedProblem::fill_rows(p.w, p.M, 2 * p.M, 1);  // of the group without rows
  backends_.each(
      [&](Backend& backend) {
        GroupedProducts products(backend, backends_.stream());
        Outputs out = products.all(p);
        out[0] = products.forward(p, false);
        return out;
      },
      [&](const Outputs& out) {
        double forward = 0, by_x = 0, by_w = 0, size = 0;
        for (int64_t i = 0; i < p.S * p.M; ++i) {
          forward += out[0].at(i) * p.dy.at(i);
          size += std::abs(out[0].at(i) * p.dy.at(i));
        }
        for (int64_t i = 0; i < p.S * p.K; ++i) by_x += out[1].at(i) * p.x.at(i);
        for (int64_t i = 0; i < p.G * p.M * p.K; ++i) by_w += out[2].at(i) * p.w.at(i);
        const double allowed = 8 * tolerance(DType::kFloat64, p.S * p.M * p.K, size);
        EXPECT_NEAR(forward, by_x, allowed);
        EXPECT_NEAR(forward, by_w, allowed);
        EXPECT_GT(std::abs(forward), 1e4 * allowed) << "says little";
      });
}

TEST_F(GroupedLinearTest, ViolationsAreBugs) {
  const GroupedProblem p(DType::kBFloat16, {{2, 3}, 1, 5, 4});
  HostMatrix y(p.dtype, 6, 4), dx(p.dtype, 6, 5), dw(p.acc, 8, 5), dbias(p.acc, 1, 8);
  HostMatrix fp32_y(p.acc, 6, 4), fp32_dx(p.acc, 6, 5), few_y(p.dtype, 5, 4), few_dx(p.dtype, 5, 5);
  HostMatrix bf16_dw(p.dtype, 8, 5), bf16_dbias(p.dtype, 1, 8), few_dbias(p.acc, 1, 7), few_dw(p.acc, 7, 5);
  HostMatrix wide_dx(p.dtype, 6, 6);
  const auto run = [&](auto args, const auto& change) {
    change(args);
    if constexpr (std::is_same_v<decltype(args), GroupedLinearForward>) {
      backends_.one().grouped_linear_forward(args, backends_.stream());
    } else if constexpr (std::is_same_v<decltype(args), GroupedLinearBackwardInput>) {
      backends_.one().grouped_linear_backward_input(args, backends_.stream());
    } else {
      backends_.one().grouped_linear_backward_weight(args, backends_.stream());
    }
    backends_.finish();
  };
  const auto no_group = [](auto& a) { a.offsets.cols = a.offsets.stride = 1; };
  const auto fp32_offsets = [](auto& a) { a.offsets.dtype = DType::kFloat32; };
  const auto three_groups = [](auto& a) { a.offsets.cols = a.offsets.stride = 4; };

  const auto forward = [&](const auto& change) {
    run(
        GroupedLinearForward{
            .x = p.x.view(), .w = p.w.view(), .bias = p.bias.view(), .offsets = view_of(p.offsets), .y = y.mut()},
        change);
  };
  EXPECT_NO_THROW(forward([](auto&) {}));
  EXPECT_THROW(forward(no_group), Bug);
  EXPECT_THROW(forward(fp32_offsets), Bug);
  EXPECT_THROW(forward(three_groups), Bug) << "weights of two groups";
  EXPECT_THROW(forward([&](auto& a) { a.w = fp32_dx.view(); }), Bug);
  EXPECT_THROW(forward([&](auto& a) { a.w.cols = 4; }), Bug);
  EXPECT_THROW(forward([&](auto& a) { a.bias = few_dbias.view(); }), Bug);
  EXPECT_THROW(forward([&](auto& a) { a.bias = dbias.view(); }), Bug) << "a bias of the accumulate dtype";
  EXPECT_THROW(forward([&](auto& a) { a.y = fp32_y.mut(); }), Bug);
  EXPECT_THROW(forward([&](auto& a) { a.y = few_y.mut(); }), Bug);

  const auto input = [&](const auto& change) {
    run(GroupedLinearBackwardInput{.dy = p.dy.view(), .w = p.w.view(), .offsets = view_of(p.offsets), .dx = dx.mut()},
        change);
  };
  EXPECT_NO_THROW(input([](auto&) {}));
  EXPECT_THROW(input(no_group), Bug);
  EXPECT_THROW(input(fp32_offsets), Bug);
  EXPECT_THROW(input(three_groups), Bug);
  EXPECT_THROW(input([&](auto& a) { a.w = {}; }), Bug);
  EXPECT_THROW(input([&](auto& a) { a.dx = fp32_dx.mut(); }), Bug);
  EXPECT_THROW(input([&](auto& a) { a.dx = few_dx.mut(); }), Bug);
  EXPECT_THROW(input([&](auto& a) { a.dx = wide_dx.mut(); }), Bug);

  const auto weight = [&](const auto& change) {
    run(
        GroupedLinearBackwardWeight{
            .dy = p.dy.view(), .x = p.x.view(), .offsets = view_of(p.offsets), .dw = dw.mut(), .dbias = dbias.mut()},
        change);
  };
  EXPECT_NO_THROW(weight([](auto&) {}));
  EXPECT_THROW(weight(no_group), Bug);
  EXPECT_THROW(weight(fp32_offsets), Bug);
  EXPECT_THROW(weight(three_groups), Bug);
  EXPECT_THROW(weight([&](auto& a) { a.x = few_dx.view(); }), Bug);
  EXPECT_THROW(weight([&](auto& a) { a.x = fp32_dx.view(); }), Bug);
  EXPECT_THROW(weight([&](auto& a) { a.dw = bf16_dw.mut(); }), Bug);
  EXPECT_THROW(weight([&](auto& a) { a.dw = few_dw.mut(); }), Bug);
  EXPECT_THROW(weight([&](auto& a) { a.dbias = bf16_dbias.mut(); }), Bug);
  EXPECT_THROW(weight([&](auto& a) { a.dbias = few_dbias.mut(); }), Bug);
}

}  // namespace
}  // namespace ashlar::test
