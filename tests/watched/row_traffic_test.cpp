// Bytes that the row kernels move against the formulas of their heads, in sectors of 32 bytes as a GPU moves them, and
// bank conflicts. bf16 where rows are aligned: what training runs.

#include <gtest/gtest.h>

#include <iomanip>
#include <iostream>

#include "kernels/cuda/emulated_backend.h"
#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

constexpr int64_t kRows = 700, kCols = 1024, kBytes = kRows * kCols * 2;
constexpr auto kStorage = DType::kBFloat16;

class RowTrafficTest : public ::testing::Test {
 protected:
  struct Formula {
    const char* kernel;
    int64_t read, written;  ///< bytes
  };

  /// At most 5% more than the formula, and no bank conflict.
  void expect(const Formula& formula) {
    stream_->synchronize();
    auto& machine = backend_.device().state().gpu.machine();
    ASSERT_TRUE(machine.traffic().contains(formula.kernel)) << formula.kernel;
    const emulator::Traffic& t = machine.traffic().at(formula.kernel);
    const auto ratio = [](int64_t sectors, int64_t bytes) {
      return bytes == 0 ? 1.0 : static_cast<double>(sectors * 32) / static_cast<double>(bytes);
    };
    std::cout << std::left << std::setw(26) << formula.kernel << std::right << std::setw(10) << formula.read
              << std::setw(10) << formula.written << std::fixed << std::setprecision(3) << std::setw(8)
              << ratio(t.read_sectors, formula.read) << std::setw(8) << ratio(t.write_sectors, formula.written)
              << std::setw(8) << t.sector_ratio() << std::setw(6) << t.bank_conflicts() << "\n";
    EXPECT_LE(ratio(t.read_sectors, formula.read), 1.05) << formula.kernel;
    EXPECT_LE(ratio(t.write_sectors, formula.written), 1.05) << formula.kernel;
    EXPECT_LE(t.sector_ratio(), 1.1) << formula.kernel;
    EXPECT_EQ(t.bank_conflicts(), 0) << formula.kernel;
    machine.clear_traffic();
  }

  static HostMatrix matrix(uint64_t seed, int64_t rows = kRows, int64_t cols = kCols, DType dtype = kStorage) {
    return random_matrix(dtype, rows, cols, seed);
  }

  instrumented::EmulatedBackend backend_{instrumented::DeviceOptions{.stream_order = "at_once"}};
  std::unique_ptr<Stream> stream_ = backend_.make_stream();
};

TEST_F(RowTrafficTest, Norms) {
  const HostMatrix x = matrix(1), dy = matrix(2), gamma = matrix(3, 1);
  HostMatrix sum = matrix(4), y(kStorage, kRows, kCols), rstd(DType::kFloat32, 1, kRows), dx = matrix(5);
  HostMatrix dgamma(DType::kFloat32, 1, kCols);
  // 64 threads hold a row and its gains: each group has one row here, and a block of the backward eight groups.
  const int64_t gains = kBytes, backward_blocks = (kRows + 7) / 8;
  const NormForward norm{
      .x = sum.view(), .gamma = gamma.view(), .beta = {}, .y = y.mut(), .mean = {}, .rstd = rstd.mut(), .variant = {}};
  backend_.norm_forward(norm, *stream_);
  expect({"norm_forward", kBytes + gains, kBytes + 32 * kRows});
  backend_.residual_norm_forward(
      {.residual = {.x = x.view(), .delta = dy.view(), .delta2 = {}, .y = sum.mut(), .dropout = {}, .dropout2 = {}},
       .norm = norm},
      *stream_);
  expect({"residual_norm_forward", 2 * kBytes + gains, 2 * kBytes + 32 * kRows});
  backend_.norm_backward({.dy = dy.view(),
                          .x = x.view(),
                          .gamma = gamma.view(),
                          .mean = {},
                          .rstd = rstd.view(),
                          .dx = dx.mut(),
                          .dgamma = dgamma.mut(),
                          .dbeta = {},
                          .dx_mode = GradMode::kAccumulate,
                          .param_mode = GradMode::kOverwrite,
                          .variant = {}},
                         *stream_);
  const int64_t partials = backward_blocks * kCols * 4;
  stream_->synchronize();
  const emulator::Traffic added = backend_.device().state().gpu.machine().traffic().at("norm_add_partials");
  EXPECT_LE(added.read_sectors * 32, partials);
  expect({"norm_backward", 3 * kBytes + gains + 2 * 32 * kRows, kBytes + 2 * partials});
}

TEST_F(RowTrafficTest, Elementwise) {
  const HostMatrix x = matrix(1), delta = matrix(2), up = matrix(3);
  HostMatrix y = matrix(4), z = matrix(5), wide(DType::kFloat32, kRows, kCols);
  backend_.residual_forward(
      {.x = x.view(), .delta = delta.view(), .delta2 = {}, .y = y.mut(), .dropout = {}, .dropout2 = {}}, *stream_);
  expect({"residual_forward", 2 * kBytes, kBytes});
  backend_.dropout_backward({.dy = x.view(), .ddelta = y.mut(), .dropout = {}}, *stream_);
  expect({"dropout_backward", kBytes, kBytes});
  backend_.copy({.src = x.view(), .dst = wide.mut()}, *stream_);
  expect({"copy", kBytes, 2 * kBytes});
  backend_.fill({.dst = wide.mut(), .value = 1}, *stream_);
  expect({"fill", 0, 2 * kBytes});
  backend_.random_fill({.dst = y.mut(), .global_cols = kCols}, *stream_);
  expect({"random_fill", 0, kBytes});
  backend_.activation_forward({.x = x.view(), .up = up.view(), .y = y.mut(), .kind = Activation::kSilu}, *stream_);
  expect({"activation_forward", 2 * kBytes, kBytes});
  backend_.activation_backward(
      {.dy = delta.view(), .x = x.view(), .up = up.view(), .dx = y.mut(), .dup = z.mut(), .kind = Activation::kSilu},
      *stream_);
  expect({"activation_backward", 3 * kBytes, 2 * kBytes});
}

TEST_F(RowTrafficTest, Rope) {
  // Ten query and two key heads of 128 beside values; rows enough that the heads of one take turns.
  constexpr int64_t kHeadDim = 128, kWidth = 14 * kHeadDim, kMany = 9000, kRotated = 12 * kHeadDim;
  HostMatrix x(kStorage, kMany, kWidth);
  x.fill(0.5);
  const HostMatrix cos = matrix(2, 64, kHeadDim / 2, DType::kFloat32),
                   sin = matrix(3, 64, kHeadDim / 2, DType::kFloat32);
  Integers positions(kMany);
  for (int64_t n = 0; n < kMany; ++n) positions[static_cast<size_t>(n)] = static_cast<int32_t>(n % 64);
  backend_.rope({.x = x.view(),
                 .y = x.mut(),
                 .positions = view_of(positions),
                 .cos = cos.view(),
                 .sin = sin.view(),
                 .heads = 14,
                 .rotated_heads = 12,
                 .head_dim = kHeadDim,
                 .dims = kHeadDim},
                *stream_);
  // A lane's eight cosines are two instructions that both touch their sector.
  const int64_t data = kMany * kRotated * 2, tables = kMany * kHeadDim * 4;
  expect({"rope", data + 2 * tables + 32 * kMany, data});
}

TEST_F(RowTrafficTest, Embedding) {
  constexpr int64_t kVocabulary = 900;
  const HostMatrix table = matrix(1, kVocabulary), dy = matrix(2);
  HostMatrix out(kStorage, kRows, kCols), dtable(DType::kFloat32, kVocabulary, kCols);
  dtable.fill(0);
  Integers ids(kRows), order(kRows);
  for (int64_t n = 0; n < kRows; ++n) {  // every id twice, in order
    ids[static_cast<size_t>(n)] = static_cast<int32_t>(n / 2);
    order[static_cast<size_t>(n)] = static_cast<int32_t>(n);
  }
  backend_.embedding_forward({.ids = view_of(ids), .table = table.view(), .out = out.mut()}, *stream_);
  expect({"embedding_forward", kBytes + 32 * kRows * 4, kBytes});
  backend_.embedding_backward({.ids = view_of(ids), .order = view_of(order), .dy = dy.view(), .dtable = dtable.mut()},
                              *stream_);
  // Eight warps look at an entry: its id and its neighbours', a few sectors each.
  expect({"embedding_backward", kBytes + kBytes + 32 * kRows * 8 * 8, kBytes});
}

TEST_F(RowTrafficTest, Loss) {
  constexpr int64_t kTokens = 40, kVocabulary = 32768;
  constexpr int64_t kLogits = kTokens * kVocabulary * 2;
  HostMatrix logits = matrix(1, kTokens, kVocabulary), max(DType::kFloat32, 1, kTokens), sum = max, target = max;
  const Integers targets(kTokens, 5);
  const LossShape shape{.targets = view_of(targets), .valid_cols = kVocabulary - 47};
  const DeviceStruct<StepScalars> scalars;
  backend_.loss_row_stats({.logits = logits.view(),
                           .row_max = max.mut(),
                           .row_sum = sum.mut(),
                           .target_logit = target.mut(),
                           .shape = shape},
                          *stream_);
  expect({"loss_row_stats", kLogits, 3 * 32 * kTokens});
  backend_.loss_backward({.logits = logits.view(),
                          .row_max = max.view(),
                          .row_sum = sum.view(),
                          .dlogits = logits.mut(),
                          .shape = shape,
                          .scalars = scalars.view()},
                         *stream_);
  expect({"loss_backward", kLogits, kLogits});
}

TEST_F(RowTrafficTest, UpdateAndNorm) {
  constexpr int64_t kSize = 1 << 20;
  const HostMatrix grad = matrix(1, 1, kSize, DType::kFloat32);
  HostMatrix master = grad, m = grad, v = grad, weights(kStorage, 1, kSize);
  const DeviceStruct<UpdateSegment> segment({.size = kSize});
  const DeviceStruct<StepScalars> scalars;
  const DeviceStruct<ClipState> clip;
  const Update update{.grad = grad.view(),
                      .master = master.mut(),
                      .weights = weights.mut(),
                      .segments = segment.view(),
                      .scalars = scalars.view(),
                      .clip = clip.view()};
  backend_.adamw({.update = update, .m = m.mut(), .v = v.mut(), .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}, *stream_);
  expect({"adamw", 16 * kSize, 14 * kSize});
  backend_.lion({.update = update, .m = m.mut(), .beta1 = 0.9, .beta2 = 0.95}, *stream_);
  expect({"lion", 12 * kSize, 10 * kSize});
  const DeviceStruct<SquaresSegment> squares({.size = kSize});
  HostMatrix partials(DType::kFloat64, 1, kSize / SumSquares::kChunk), sums(DType::kFloat64, 1, 1);
  backend_.sum_squares({.x = grad.view(), .segments = squares.view(), .partials = partials.mut(), .sums = sums.mut()},
                       *stream_);
  expect({"sum_squares", 4 * kSize, 32 * kSize / SumSquares::kChunk});
}

}  // namespace
}  // namespace ashlar::test
