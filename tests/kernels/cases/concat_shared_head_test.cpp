#include <gtest/gtest.h>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

struct Heads {
  int64_t rows, heads, shared, own;
};
/// Odd widths, whole vectors, one head, and heads that are shared whole.
constexpr std::array<Heads, 8> kHeads = {Heads{1, 1, 1, 1}, {3, 5, 4, 6}, {17, 3, 7, 5}, {9, 4, 16, 48},
                                         {33, 2, 64, 128},  {5, 1, 8, 8}, {6, 3, 6, 0},  {130, 6, 2, 9}};

class ConcatSharedHeadTest : public ::testing::Test {
 protected:
  EveryBackend backends_;

  template <typename F>
  void for_each_case(const F& f) {
    for (const DType dtype : kStorageDTypes) {
      for (const Heads& h : kHeads) {
        for (const int64_t padding : {0, 3}) {
          SCOPED_TRACE(str_cat(name_of(dtype), " rows ", h.rows, " heads ", h.heads, " shared ", h.shared, " own ",
                               h.own, " padding ", padding));
          f(dtype, h, padding);
        }
      }
    }
  }
};

TEST_F(ConcatSharedHeadTest, EveryHeadBeginsWithTheSharedColumns) {
  for_each_case([&](DType dtype, const Heads& h, int64_t padding) {
    const HostMatrix shared = random_matrix(dtype, h.rows, h.shared, 1, padding);
    const HostMatrix own = random_matrix(dtype, h.rows, h.heads * h.own, 2, padding);
    const int64_t width = h.shared + h.own;
    backends_.each(
        [&](Backend& backend) {
          Outputs out = {HostMatrix(dtype, h.rows, h.heads * width, padding)};
          backend.concat_shared_head({.shared = shared.view(), .own = own.view(), .y = out[0].mut(), .heads = h.heads},
                                     backends_.stream());
          return out;
        },
        [&](const Outputs& out) {
          for (int64_t r = 0; r < h.rows; ++r) {
            for (int64_t c = 0; c < h.heads * width; ++c) {
              const int64_t head = c / width, at = c % width;
              const double expected = at < h.shared ? shared.at(r, at) : own.at(r, head * h.own + at - h.shared);
              ASSERT_EQ(out[0].at(r, c), expected) << r << ", " << c;
            }
          }
        });
  });
}

TEST_F(ConcatSharedHeadTest, BackwardAddsTheHeadsInEveryMode) {
  for_each_case([&](DType dtype, const Heads& h, int64_t padding) {
    const int64_t width = h.shared + h.own;
    const HostMatrix dy = random_matrix(dtype, h.rows, h.heads * width, 1, padding);
    const HostMatrix shared = random_matrix(dtype, h.rows, h.shared, 2, padding);
    const HostMatrix own = random_matrix(dtype, h.rows, h.heads * h.own, 3, padding);
    for (const bool accumulate : {false, true}) {
      backends_.each(
          [&](Backend& backend) {
            Outputs out = {accumulate ? shared : HostMatrix(dtype, h.rows, h.shared, padding),
                           accumulate ? own : HostMatrix(dtype, h.rows, h.heads * h.own, padding)};
            backend.concat_shared_head_backward({.dy = dy.view(),
                                                 .dshared = out[0].mut(),
                                                 .down = out[1].mut(),
                                                 .heads = h.heads,
                                                 .mode = accumulate ? GradMode::kAccumulate : GradMode::kOverwrite},
                                                backends_.stream());
            return out;
          },
          [&](const Outputs& out) {
            const auto sum = [&](int64_t r, int64_t c, bool sizes) {
              double total = accumulate ? shared.at(r, c) : 0;
              if (sizes) total = std::abs(total);
              for (int64_t i = 0; i < h.heads; ++i) {
                const double v = dy.at(r, i * width + c);
                total += sizes ? std::abs(v) : v;
              }
              return total;
            };
            expect_near(
                out[0], h.heads, [&](int64_t r, int64_t c) { return sum(r, c, false); },
                [&](int64_t r, int64_t c) { return sum(r, c, true); }, "dshared");
            if (h.own == 0) return;
            const auto from = [&](int64_t r, int64_t c) { return dy.at(r, c / h.own * width + h.shared + c % h.own); };
            expect_near(
                out[1], 1, [&](int64_t r, int64_t c) { return (accumulate ? own.at(r, c) : 0) + from(r, c); },
                [&](int64_t r, int64_t c) { return (accumulate ? std::abs(own.at(r, c)) : 0) + std::abs(from(r, c)); },
                "down");
          });
    }
  });
}

TEST_F(ConcatSharedHeadTest, AWrongShapeIsABug) {
  HostMatrix shared(DType::kFloat32, 2, 3), own(DType::kFloat32, 2, 8), y(DType::kFloat32, 2, 14);
  const auto call = [&](int64_t heads) {
    backends_.one().concat_shared_head({.shared = shared.view(), .own = own.view(), .y = y.mut(), .heads = heads},
                                       backends_.stream());
  };
  EXPECT_NO_THROW(call(2));
  backends_.finish();
  for (const int64_t heads : {0, 1, 3}) EXPECT_THROW(call(heads), Bug) << heads;
}

}  // namespace
}  // namespace ashlar::test
