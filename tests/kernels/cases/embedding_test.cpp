#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

struct EmbeddingCase {
  int64_t rows, vocabulary, cols;
};

constexpr std::array<EmbeddingCase, 7> kEmbeddingCases = {
    EmbeddingCase{1, 1, 1}, {3, 5, 3}, {33, 7, 31}, {257, 3, 33}, {100, 200, 257}, {300, 65, 128}, {130, 400, 260}};

Integers random_ids(int64_t rows, int64_t vocabulary) {
  std::mt19937_64 generator(7);
  Integers ids(static_cast<size_t>(rows));
  // Half of the rows share a few ids, so that runs are long and cross blocks.
  for (auto& id : ids) {
    const auto draw = static_cast<int64_t>(generator() % static_cast<uint64_t>(vocabulary));
    id = static_cast<int32_t>(generator() % 2 == 0 ? draw : draw % 3);
  }
  return ids;
}

Integers stable_order(const Integers& ids) {
  Integers order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)]; });
  return order;
}

class EmbeddingTest : public ::testing::Test {
 protected:
  EveryBackend backends_;
};

TEST_F(EmbeddingTest, ForwardLooksUpScalesAndAccumulates) {
  for (const DType dtype : kStorageDTypes) {
    for (const EmbeddingCase& k : kEmbeddingCases) {
      const Integers ids = random_ids(k.rows, k.vocabulary);
      const HostMatrix table = random_matrix(dtype, k.vocabulary, k.cols, 1, 2);
      const HostMatrix before = random_matrix(dtype, k.rows, k.cols, 2, 1);
      for (const double scale : {1.0, 11.3}) {
        for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate, GradMode::kSkip}) {
          const HostMatrix start = mode == GradMode::kAccumulate ? before : HostMatrix(dtype, k.rows, k.cols, 1);
          backends_.each(
              [&](Backend& backend) {
                Outputs out = {start};
                backend.embedding_forward(
                    {.ids = view_of(ids), .table = table.view(), .out = out[0].mut(), .scale = scale, .mode = mode},
                    backends_.stream());
                return out;
              },
              [&](const Outputs& out) {
                if (mode == GradMode::kSkip) {
                  EXPECT_TRUE(out[0] == start);
                  return;
                }
                const auto old = [&](int64_t r, int64_t c) {
                  return mode == GradMode::kAccumulate ? before.at(r, c) : 0.0;
                };
                const auto value = [&](int64_t r, int64_t c) {
                  return scale * table.at(ids[static_cast<size_t>(r)], c);
                };
                expect_near(
                    out[0], 1, [&](int64_t r, int64_t c) { return old(r, c) + value(r, c); },
                    [&](int64_t r, int64_t c) { return std::abs(old(r, c)) + std::abs(value(r, c)); }, "out");
                if (mode == GradMode::kOverwrite && scale == 1) {
                  for (int64_t c = 0; c < k.cols; ++c) ASSERT_EQ(out[0].at(0, c), table.at(ids[0], c));
                }
              });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(EmbeddingTest, BackwardAddsRowsInAscendingOrder) {
  for (const DType dtype : kStorageDTypes) {
    const DType acc = accumulate_dtype(dtype);
    for (const EmbeddingCase& k : kEmbeddingCases) {
      SCOPED_TRACE(str_cat(name_of(dtype), " rows ", k.rows, " vocabulary ", k.vocabulary, " cols ", k.cols));
      const Integers ids = random_ids(k.rows, k.vocabulary);
      const Integers order = stable_order(ids);
      const HostMatrix dy = random_matrix(dtype, k.rows, k.cols, 1, 3);
      const HostMatrix before = random_matrix(acc, k.vocabulary, k.cols, 2);
      for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate, GradMode::kSkip}) {
        const bool accumulate = mode == GradMode::kAccumulate;
        const HostMatrix start = accumulate ? before : HostMatrix(acc, k.vocabulary, k.cols);
        // The same additions one after another in the accumulate type give the same bits (scale 1).
        HostMatrix sum(acc, k.vocabulary, k.cols);
        sum.fill(0);
        std::vector<bool> named(static_cast<size_t>(k.vocabulary));
        for (int64_t n = 0; n < k.rows; ++n) {
          const int32_t id = ids[static_cast<size_t>(n)];
          named[static_cast<size_t>(id)] = true;
          for (int64_t c = 0; c < k.cols; ++c) sum.set(id, c, sum.at(id, c) + dy.at(n, c));
        }
        backends_.each(
            [&](Backend& backend) {
              Outputs out = {start, start};
              for (const double scale : {1.0, 11.3}) {
                backend.embedding_backward({.ids = view_of(ids),
                                            .order = view_of(order),
                                            .dy = dy.view(),
                                            .dtable = out[scale == 1 ? 0 : 1].mut(),
                                            .scale = scale,
                                            .mode = mode},
                                           backends_.stream());
              }
              return out;
            },
            [&](const Outputs& out) {
              if (mode == GradMode::kSkip) {
                EXPECT_TRUE(out[0] == start && out[1] == start);
                return;
              }
              for (int64_t v = 0; v < k.vocabulary; ++v) {
                for (int64_t c = 0; c < k.cols; ++c) {
                  const double old = accumulate ? before.at(v, c) : 0;
                  ASSERT_EQ(out[0].at(v, c), rounded(acc, old + sum.at(v, c))) << v << " " << c;
                  ASSERT_NEAR(out[1].at(v, c), old + 11.3 * sum.at(v, c),
                              tolerance(acc, 1, std::abs(old) + 12 * std::abs(sum.at(v, c))));
                  if (!named[static_cast<size_t>(v)]) {
                    ASSERT_EQ(out[1].at(v, c), old);
                  }
                }
              }
            });
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A vocabulary cut into three tables: each row is found in exactly one of them, the others give zero or leave alone.
TEST_F(EmbeddingTest, SlicesOfTheVocabularyTogetherAreTheWhole) {
  const EmbeddingCase k{130, 40, 33};
  const Integers ids = random_ids(k.rows, k.vocabulary);
  const Integers order = stable_order(ids);
  const HostMatrix table = random_matrix(DType::kFloat32, k.vocabulary, k.cols, 1);
  const HostMatrix dy = random_matrix(DType::kFloat32, k.rows, k.cols, 2);
  HostMatrix whole(DType::kFloat32, k.vocabulary, k.cols);
  backends_.one().embedding_backward({.ids = view_of(ids),
                                      .order = view_of(order),
                                      .dy = dy.view(),
                                      .dtable = whole.mut(),
                                      .mode = GradMode::kOverwrite},
                                     backends_.stream());
  backends_.finish();
  const int64_t cuts[] = {0, 1, 23, 40};
  backends_.each(
      [&](Backend& backend) {
        Outputs out;
        for (int part = 0; part < 3; ++part) {
          const int64_t first = cuts[part], rows = cuts[part + 1] - first;
          ConstView slice = table.view();
          slice.data = static_cast<const float*>(slice.data) + first * slice.stride;
          slice.rows = rows;
          out.emplace_back(DType::kFloat32, k.rows, k.cols, 3);    // overwritten
          out.emplace_back(DType::kFloat32, k.rows, k.cols);       // added to ones
          out.emplace_back(DType::kFloat32, rows + 1, k.cols, 5);  // gradient, and a row that is not its own
          const size_t at = out.size() - 3;
          MutView dtable = out[at + 2].mut();
          dtable.rows = rows;
          for (int64_t c = 0; c < k.cols; ++c) out[at + 2].set(rows, c, 7);
          backend.embedding_forward({.ids = view_of(ids), .table = slice, .out = out[at].mut(), .first_id = first},
                                    backends_.stream());
          out[at + 1].fill(1);
          backend.embedding_forward({.ids = view_of(ids),
                                     .table = slice,
                                     .out = out[at + 1].mut(),
                                     .mode = GradMode::kAccumulate,
                                     .first_id = first},
                                    backends_.stream());
          backend.embedding_backward({.ids = view_of(ids),
                                      .order = view_of(order),
                                      .dy = dy.view(),
                                      .dtable = dtable,
                                      .mode = GradMode::kOverwrite,
                                      .first_id = first},
                                     backends_.stream());
        }
        return out;
      },
      [&](const Outputs& out) {
        for (int part = 0; part < 3; ++part) {
          const size_t at = static_cast<size_t>(3 * part);
          for (int64_t n = 0; n < k.rows; ++n) {
            const int32_t id = ids[static_cast<size_t>(n)];
            const bool here = id >= cuts[part] && id < cuts[part + 1];
            for (int64_t c = 0; c < k.cols; ++c) {
              ASSERT_EQ(out[at].at(n, c), here ? table.at(id, c) : 0) << part << " " << n;
              ASSERT_EQ(out[at + 1].at(n, c), here ? rounded(DType::kFloat32, 1 + table.at(id, c)) : 1);
            }
          }
          for (int64_t v = cuts[part]; v < cuts[part + 1]; ++v)
            for (int64_t c = 0; c < k.cols; ++c) ASSERT_EQ(out[at + 2].at(v - cuts[part], c), whole.at(v, c));
          for (int64_t c = 0; c < k.cols; ++c) ASSERT_EQ(out[at + 2].at(cuts[part + 1] - cuts[part], c), 7) << part;
        }
      });
}

TEST_F(EmbeddingTest, BackwardIsTheAdjointOfForward) {
  const EmbeddingCase k{57, 20, 33};
  const Integers ids = random_ids(k.rows, k.vocabulary);
  const Integers order = stable_order(ids);
  const HostMatrix table = random_matrix(DType::kFloat64, k.vocabulary, k.cols, 1);
  const HostMatrix dy = random_matrix(DType::kFloat64, k.rows, k.cols, 2);
  HostMatrix out(DType::kFloat64, k.rows, k.cols);
  HostMatrix dtable(DType::kFloat64, k.vocabulary, k.cols);
  backends_.one().embedding_forward({.ids = view_of(ids), .table = table.view(), .out = out.mut(), .scale = 1.7},
                                    backends_.stream());
  backends_.finish();
  backends_.one().embedding_backward({.ids = view_of(ids),
                                      .order = view_of(order),
                                      .dy = dy.view(),
                                      .dtable = dtable.mut(),
                                      .scale = 1.7,
                                      .mode = GradMode::kOverwrite},
                                     backends_.stream());
  backends_.finish();
  double forward = 0;  // <dy, E table> = <E^T dy, table>: exact derivative of a linear map
  for (int64_t i = 0; i < k.rows * k.cols; ++i) forward += dy.at(i) * out.at(i);
  double backward = 0;
  for (int64_t i = 0; i < k.vocabulary * k.cols; ++i) backward += dtable.at(i) * table.at(i);
  EXPECT_NEAR(forward, backward, 1e-10 * std::abs(forward) + 1e-10);
}

}  // namespace
}  // namespace ashlar::test
