// Bytes that rows of experts and grouped products move in bf16. A block of a product brings its own rows of both
// factors once: 128 of each, or as many as its group has.

#include "core/base/strings.h"
#include "tests/evidence/kernel_traffic.h"
#include "tests/support/kernel_grid.h"

namespace ashlar::evidence {
namespace {

using test::HostMatrix;
using test::Integers;
using test::random_matrix;
using test::view_of;

void measure_rows(WatchedDevice& device, std::vector<KernelRow>& rows) {
  constexpr int64_t kN = 300, kChoices = 4, kCols = 1024, kBytes = kN * kCols * 2, kSurplus = 60;
  const HostMatrix x = random_matrix(kStorage, kN, kCols, 1);
  const HostMatrix weights = random_matrix(DType::kFloat32, kN, kChoices, 2);
  const HostMatrix others = random_matrix(kStorage, kN * kChoices + kSurplus, kCols, 3);
  HostMatrix slots(DType::kInt32, kN, kChoices), slot_rows(kStorage, kN * kChoices + kSurplus, kCols);
  HostMatrix y(kStorage, kN, kCols), dots(DType::kFloat32, kN, kChoices);
  for (int64_t i = 0; i < kN * kChoices; ++i) slots.set(i, static_cast<double>(i * 7 % (kN * kChoices)));
  const Integers offsets = {0, kN * kChoices};
  const std::string problem = str_cat("N ", kN, ", k ", kChoices, ", C ", kCols);
  const auto add = [&](const std::string& kernel, const std::string& formula, int64_t read, int64_t written) {
    rows.push_back({kernel, problem, formula, read, written, device.take(kernel)});
  };
  device.backend().dispatch_rows(
      {.x = x.view(), .slots = slots.view(), .offsets = view_of(offsets), .rows = slot_rows.mut()}, device.stream());
  const int64_t numbers = kSector * kN * kChoices;
  add("dispatch_rows", "x a choice, slots; rows", kChoices * kBytes + numbers,
      kChoices * kBytes + kSurplus * kCols * 2);
  device.backend().dispatch_rows({.x = x.view(),
                                  .slots = slots.view(),
                                  .offsets = view_of(offsets),
                                  .weights = weights.view(),
                                  .others = others.view(),
                                  .rows = slot_rows.mut(),
                                  .dots = dots.mut()},
                                 device.stream());
  add("dispatch_rows", "x and others a choice, slots, weights; rows, dots", 2 * kChoices * kBytes + 2 * numbers,
      kChoices * kBytes + kSurplus * kCols * 2 + numbers);
  device.backend().combine_rows(
      {.rows = slot_rows.view(), .slots = slots.view(), .weights = weights.view(), .y = y.mut()}, device.stream());
  constexpr int64_t kWarps = kCols / 256;  // of a row
  add("combine_rows", "rows a choice, slots and weights a warp; y", kChoices * kBytes + 2 * kWarps * numbers, kBytes);
  device.backend().combine_rows({.rows = slot_rows.view(),
                                 .slots = slots.view(),
                                 .others = x.view(),
                                 .y = y.mut(),
                                 .dots = dots.mut(),
                                 .mode = GradMode::kAccumulate},
                                device.stream());
  const auto both = device.take();
  rows.push_back({"combine_rows", problem, "y, rows a choice, slots a warp; y",
                  (kChoices + 1) * kBytes + kWarps * numbers, kBytes, both.at("combine_rows")});
  rows.push_back({"combine_dots", problem, "others and rows a choice, slots; dots", 2 * kChoices * kBytes + numbers,
                  numbers, both.at("combine_dots")});
}

void measure_products(WatchedDevice& device, std::vector<KernelRow>& rows) {
  constexpr int64_t kK = 256, kM = 384, kTile = 128;
  const std::vector<int64_t> groups = {100, 0, 128, 200};
  Integers offsets(1, 0);
  for (const int64_t group : groups) offsets.push_back(offsets.back() + static_cast<int32_t>(group));
  const int64_t S = offsets.back(), G = std::ssize(groups);
  int64_t tiles = 0;
  for (const int64_t group : groups) tiles += (group + kTile - 1) / kTile;
  const HostMatrix x = random_matrix(kStorage, S, kK, 1), dy = random_matrix(kStorage, S, kM, 2);
  const HostMatrix w = random_matrix(kStorage, G * kM, kK, 3);
  HostMatrix y(kStorage, S, kM), dx(kStorage, S, kK), dw(DType::kFloat32, G * kM, kK);
  const std::string problem = str_cat("S ", S, " in ", G, " groups, K ", kK, ", M ", kM);
  const auto add = [&](const std::string& kernel, const std::string& formula, int64_t read, int64_t written) {
    rows.push_back({kernel, problem, formula, read, written, device.take(kernel)});
  };
  device.backend().grouped_linear_forward({.x = x.view(), .w = w.view(), .offsets = view_of(offsets), .y = y.mut()},
                                          device.stream());
  add("grouped_linear_forward", "rows of x and 128 of w a tile; y", (S + tiles * kTile) * kK * 2 * (kM / kTile),
      S * kM * 2);
  device.backend().grouped_linear_backward_input(
      {.dy = dy.view(), .w = w.view(), .offsets = view_of(offsets), .dx = dx.mut()}, device.stream());
  add("grouped_linear_backward_input", "rows of dy and 128 columns of w a tile; dx",
      (S + tiles * kTile) * kM * 2 * (kK / kTile), S * kK * 2);
  device.backend().grouped_linear_backward_weight(
      {.dy = dy.view(), .x = x.view(), .offsets = view_of(offsets), .dw = dw.mut(), .mode = GradMode::kOverwrite},
      device.stream());
  add("grouped_linear_backward_weight", "128 columns of dy and of x a tile; dw fp32",
      S * (kM / kTile) * (kK / kTile) * 2 * kTile * 2, G * kM * kK * 4);
}

}  // namespace

std::vector<KernelRow> measure_experts() {
  WatchedDevice device;
  std::vector<KernelRow> rows;
  measure_rows(device, rows);
  measure_products(device, rows);
  return rows;
}

}  // namespace ashlar::evidence
