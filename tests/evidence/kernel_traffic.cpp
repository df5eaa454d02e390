// Bytes that the row kernels move, and the formulas of their heads. bf16 where rows are aligned: what training runs.

#include "tests/evidence/kernel_traffic.h"

#include "core/base/strings.h"
#include "tests/support/kernel_grid.h"

namespace ashlar::evidence {
namespace {

using test::DeviceStruct;
using test::HostMatrix;
using test::Integers;
using test::random_matrix;
using test::view_of;

constexpr int64_t kRows = 700, kCols = 1024, kBytes = kRows * kCols * 2;

double ratio(int64_t sectors, int64_t bytes) {
  return bytes == 0 ? 1.0 : static_cast<double>(sectors * kSector) / static_cast<double>(bytes);
}

HostMatrix matrix(uint64_t seed, int64_t rows = kRows, int64_t cols = kCols, DType dtype = kStorage) {
  return random_matrix(dtype, rows, cols, seed);
}

/// A device and the table that it fills.
struct Bench {
  WatchedDevice device;
  std::vector<KernelRow>& rows;

  struct Formula {
    int64_t read, written;
    const char* text;
  };
  /// After the call of a backend that queued `kernel`.
  void add(const char* kernel, const std::string& problem, const Formula& formula) {
    rows.push_back({kernel, problem, formula.text, formula.read, formula.written, device.take(kernel)});
  }
};

void norms(Bench& bench) {
  Backend& backend = bench.device.backend();
  Stream& stream = bench.device.stream();
  const HostMatrix x = matrix(1), dy = matrix(2), gamma = matrix(3, 1);
  HostMatrix sum = matrix(4), y(kStorage, kRows, kCols), rstd(DType::kFloat32, 1, kRows), dx = matrix(5);
  HostMatrix dgamma(DType::kFloat32, 1, kCols);
  const std::string problem = str_cat("N ", kRows, ", C ", kCols);
  // 64 threads hold a row and its gains: each group has one row here, and a block of the backward eight groups.
  const int64_t gains = kBytes, statistics = kSector * kRows, partials = (kRows + 7) / 8 * kCols * 4;
  const NormForward norm{
      .x = sum.view(), .gamma = gamma.view(), .beta = {}, .y = y.mut(), .mean = {}, .rstd = rstd.mut(), .variant = {}};
  backend.norm_forward(norm, stream);
  bench.add("norm_forward", problem, {kBytes + gains, kBytes + statistics, "x, gains a group; y, rstd"});
  backend.residual_norm_forward(
      {.residual = {.x = x.view(), .delta = dy.view(), .delta2 = {}, .y = sum.mut(), .dropout = {}, .dropout2 = {}},
       .norm = norm},
      stream);
  bench.add("residual_norm_forward", problem,
            {2 * kBytes + gains, 2 * kBytes + statistics, "x, delta, gains a group; sum, y, rstd"});
  backend.norm_backward({.dy = dy.view(),
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
                        stream);
  const auto backward = bench.device.take();
  bench.rows.push_back({"norm_backward", problem, "dy, x, dx, gains a group, rstd; dx, shares of dgamma a block",
                        3 * kBytes + gains + 2 * statistics, kBytes + 2 * partials, backward.at("norm_backward")});
  bench.rows.push_back({"norm_add_partials", problem, "shares of dgamma; dgamma, a sector a number", partials,
                        kCols * kSector, backward.at("norm_add_partials")});
}

void elementwise(Bench& bench) {
  Backend& backend = bench.device.backend();
  Stream& stream = bench.device.stream();
  const std::string problem = str_cat("N ", kRows, ", C ", kCols);
  const HostMatrix x = matrix(1), delta = matrix(2), up = matrix(3);
  HostMatrix y = matrix(4), z = matrix(5), wide(DType::kFloat32, kRows, kCols);
  backend.residual_forward(
      {.x = x.view(), .delta = delta.view(), .delta2 = {}, .y = y.mut(), .dropout = {}, .dropout2 = {}}, stream);
  bench.add("residual_forward", problem, {2 * kBytes, kBytes, "x, delta; y"});
  backend.dropout_backward({.dy = x.view(), .ddelta = y.mut(), .dropout = {}}, stream);
  bench.add("dropout_backward", problem, {kBytes, kBytes, "dy; ddelta"});
  backend.copy({.src = x.view(), .dst = wide.mut()}, stream);
  bench.add("copy", problem, {kBytes, 2 * kBytes, "bf16; fp32"});
  backend.fill({.dst = wide.mut(), .value = 1}, stream);
  bench.add("fill", problem, {0, 2 * kBytes, "; fp32"});
  backend.random_fill({.dst = y.mut(), .global_cols = kCols}, stream);
  bench.add("random_fill", problem, {0, kBytes, "; x"});
  backend.activation_forward({.x = x.view(), .up = up.view(), .y = y.mut(), .kind = Activation::kSilu}, stream);
  bench.add("activation_forward", problem, {2 * kBytes, kBytes, "gate, up; y"});
  backend.activation_backward(
      {.dy = delta.view(), .x = x.view(), .up = up.view(), .dx = y.mut(), .dup = z.mut(), .kind = Activation::kSilu},
      stream);
  bench.add("activation_backward", problem, {3 * kBytes, 2 * kBytes, "dy, gate, up; dgate, dup"});
  HostMatrix bias(DType::kFloat32, 1, kCols);
  backend.linear_backward_weight({.dy = x.view(), .x = {}, .dw = {}, .dbias = bias.mut(), .mode = GradMode::kOverwrite},
                                 stream);
  const auto sums = bench.device.take();
  const int64_t partials = (kRows + 255) / 256 * kCols * 4;
  bench.rows.push_back({"column_partials", problem, "dy; sums of 256 rows, a sector a number", kBytes,
                        partials / 4 * kSector, sums.at("column_partials")});
  bench.rows.push_back(
      {"add_partials", problem, "sums of 256 rows; dbias", partials, kCols * 4, sums.at("add_partials")});
}

void rope(Bench& bench) {
  // Ten query and two key heads of 128 beside values; rows enough that the heads of one take turns.
  constexpr int64_t kHeadDim = 128, kWidth = 14 * kHeadDim, kMany = 9000, kRotated = 12 * kHeadDim;
  HostMatrix x(kStorage, kMany, kWidth);
  x.fill(0.5);
  const HostMatrix cos = matrix(2, 64, kHeadDim / 2, DType::kFloat32),
                   sin = matrix(3, 64, kHeadDim / 2, DType::kFloat32);
  Integers positions(kMany);
  for (int64_t n = 0; n < kMany; ++n) positions[static_cast<size_t>(n)] = static_cast<int32_t>(n % 64);
  bench.device.backend().rope({.x = x.view(),
                               .y = x.mut(),
                               .positions = view_of(positions),
                               .cos = cos.view(),
                               .sin = sin.view(),
                               .heads = 14,
                               .rotated_heads = 12,
                               .head_dim = kHeadDim,
                               .dims = kHeadDim},
                              bench.device.stream());
  // A lane's eight cosines are two instructions that both touch their sector.
  const int64_t data = kMany * kRotated * 2, tables = kMany * kHeadDim * 4;
  bench.add("rope", str_cat("N ", kMany, ", 12 heads of 128"),
            {data + 2 * tables + kSector * kMany, data, "q, k, tables twice a row, position; q, k"});
}

void embedding(Bench& bench) {
  constexpr int64_t kVocabulary = 900;
  const HostMatrix table = matrix(1, kVocabulary), dy = matrix(2);
  HostMatrix out(kStorage, kRows, kCols), dtable(DType::kFloat32, kVocabulary, kCols);
  dtable.fill(0);
  Integers ids(kRows), order(kRows);
  for (int64_t n = 0; n < kRows; ++n) {  // every id twice, in order
    ids[static_cast<size_t>(n)] = static_cast<int32_t>(n / 2);
    order[static_cast<size_t>(n)] = static_cast<int32_t>(n);
  }
  const std::string problem = str_cat("N ", kRows, ", C ", kCols, ", each id twice");
  bench.device.backend().embedding_forward({.ids = view_of(ids), .table = table.view(), .out = out.mut()},
                                           bench.device.stream());
  bench.add("embedding_forward", problem, {kBytes + kSector * kRows * 4, kBytes, "rows of the table, ids; out"});
  bench.device.backend().embedding_backward(
      {.ids = view_of(ids), .order = view_of(order), .dy = dy.view(), .dtable = dtable.mut()}, bench.device.stream());
  // Eight warps look at an entry: its id and its neighbours', a few sectors each.
  bench.add("embedding_backward", problem,
            {kBytes + kBytes + kSector * kRows * 8 * 8, kBytes, "dy, dtable fp32 an id, ids; dtable"});
}

void loss(Bench& bench) {
  constexpr int64_t kTokens = 40, kVocabulary = 32768;
  constexpr int64_t kLogits = kTokens * kVocabulary * 2;
  HostMatrix logits = matrix(1, kTokens, kVocabulary), max(DType::kFloat32, 1, kTokens), sum = max, target = max;
  const Integers targets(kTokens, 5);
  const LossShape shape{.targets = view_of(targets), .valid_cols = kVocabulary - 47};
  const DeviceStruct<StepScalars> scalars;
  const std::string problem = str_cat("N ", kTokens, ", V ", kVocabulary);
  bench.device.backend().loss_row_stats({.logits = logits.view(),
                                         .row_max = max.mut(),
                                         .row_sum = sum.mut(),
                                         .target_logit = target.mut(),
                                         .shape = shape},
                                        bench.device.stream());
  bench.add("loss_row_stats", problem, {kLogits, 3 * kSector * kTokens, "logits; maximum, sum, target"});
  bench.device.backend().loss_backward({.logits = logits.view(),
                                        .row_max = max.view(),
                                        .row_sum = sum.view(),
                                        .dlogits = logits.mut(),
                                        .shape = shape,
                                        .scalars = scalars.view()},
                                       bench.device.stream());
  bench.add("loss_backward", problem, {kLogits, kLogits, "logits; their gradients, in place"});
}

/// Both at once, by rows that shared memory holds and by rows that need registers, too.
void loss_at_once(Bench& bench) {
  for (const auto& [tokens, vocabulary] : {std::pair<int64_t, int64_t>(24, 50304), {8, 151936}}) {
    const int64_t bytes = tokens * vocabulary * 2;
    HostMatrix logits = matrix(1, tokens, vocabulary), max(DType::kFloat32, 1, tokens), sum = max, target = max;
    const Integers targets(static_cast<size_t>(tokens), 5);
    const DeviceStruct<StepScalars> scalars;
    bench.device.backend().loss_stats_and_grad({.logits = logits.view(),
                                                .row_max = max.mut(),
                                                .row_sum = sum.mut(),
                                                .target_logit = target.mut(),
                                                .dlogits = logits.mut(),
                                                .shape = {.targets = view_of(targets), .valid_cols = vocabulary - 47},
                                                .scalars = scalars.view()},
                                               bench.device.stream());
    bench.add("loss_stats_and_grad", str_cat("N ", tokens, ", V ", vocabulary),
              {bytes, bytes + 3 * kSector * tokens, "logits; gradients in place, maximum, sum, target"});
  }
}

void update_and_norm(Bench& bench) {
  constexpr int64_t kSize = 1 << 20;
  Backend& backend = bench.device.backend();
  Stream& stream = bench.device.stream();
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
  const std::string problem = str_cat(kSize, " parameters");
  backend.adamw({.update = update, .m = m.mut(), .v = v.mut(), .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}, stream);
  bench.add("adamw", problem, {16 * kSize, 14 * kSize, "gradient, master, m, v fp32; master, m, v, weight bf16"});
  backend.lion({.update = update, .m = m.mut(), .beta1 = 0.9, .beta2 = 0.95}, stream);
  bench.add("lion", problem, {12 * kSize, 10 * kSize, "gradient, master, m fp32; master, m, weight bf16"});
  const DeviceStruct<SquaresSegment> squares({.size = kSize});
  HostMatrix partials(DType::kFloat64, 1, kSize / SumSquares::kChunk), sums(DType::kFloat64, 1, 1);
  backend.sum_squares({.x = grad.view(), .segments = squares.view(), .partials = partials.mut(), .sums = sums.mut()},
                      stream);
  bench.add("sum_squares", problem,
            {4 * kSize, kSector * kSize / SumSquares::kChunk, "gradient fp32; a sum of 4096 each"});
}

}  // namespace

double KernelRow::read_ratio() const { return ratio(measured.traffic.read_sectors, read); }
double KernelRow::write_ratio() const { return ratio(measured.traffic.write_sectors, written); }

std::vector<KernelRow> measure_row_kernels() {
  std::vector<KernelRow> rows;
  for (const auto& measure : {norms, elementwise, rope, embedding, loss, loss_at_once, update_and_norm}) {
    Bench bench{.device = {}, .rows = rows};
    measure(bench);
  }
  return rows;
}

}  // namespace ashlar::evidence
