// Bytes that routers move: logits in fp32, numbers of choices, sums over rows in fp64. The words of a formula count
// sectors where a warp asks for single numbers.

#include <map>
#include <utility>

#include "core/base/strings.h"
#include "tests/evidence/kernel_traffic.h"
#include "tests/support/kernel_grid.h"

namespace ashlar::evidence {
namespace {

using test::DeviceStruct;
using test::HostMatrix;
using test::random_matrix;

constexpr int64_t kN = 768, kE = 128, kChoices = 8, kSequenceRows = 256, kSequences = kN / kSequenceRows;
constexpr int64_t kLogits = kN * kE * 4, kNumbers = kN * kChoices * 4;  // bytes
constexpr int64_t kScattered = kN * kChoices * kSector;                 // a sector for each choice

struct RouterTable {
  WatchedDevice device;
  std::vector<KernelRow> rows;
  std::string problem = str_cat("N ", kN, ", E ", kE, ", k ", kChoices, ", T ", kSequenceRows);

  void add(const std::string& kernel, const std::string& formula, int64_t read, int64_t written,
           const std::map<std::string, Measured>& measured, bool scattered = false) {
    rows.push_back({kernel, problem, formula, read, written, measured.at(kernel), scattered});
  }
};

/// The choices of a router, which are those of `logits`.
struct Routed {
  HostMatrix logits = random_matrix(DType::kFloat32, kN, kE, 1);
  HostMatrix choices{DType::kInt32, kN, kChoices}, weights{DType::kFloat32, kN, kChoices};
};

void measure_route(RouterTable& table, Routed& r) {
  Backend& backend = table.device.backend();
  Stream& stream = table.device.stream();
  const RouterRule rule{.renormalize = true};
  backend.route_forward(
      {.logits = r.logits.view(), .choices = r.choices.mut(), .weights = r.weights.mut(), .rule = rule}, stream);
  table.add("route_forward", "logits, those of the choices three times; choices, weights", kLogits + 3 * kScattered,
            2 * kNumbers, table.device.take(), true);
  const HostMatrix dweights = random_matrix(DType::kFloat32, kN, kChoices, 2);
  const HostMatrix balance = random_matrix(DType::kFloat32, kSequences, kE, 3);
  HostMatrix dlogits(DType::kFloat32, kN, kE);
  const DeviceStruct<StepScalars> scalars;
  backend.route_backward({.logits = r.logits.view(),
                          .choices = r.choices.view(),
                          .dweights = dweights.view(),
                          .balance = balance.view(),
                          .dlogits = dlogits.mut(),
                          .scalars = scalars.view(),
                          .balance_rows = kSequenceRows,
                          .rule = rule},
                         stream);
  table.add("route_backward",
            "logits four times, balance twice, five numbers a choice; dlogits, those of the choices twice",
            6 * kLogits + 5 * kScattered, kLogits + kScattered, table.device.take(), true);
}

void measure_balance(RouterTable& table, const Routed& r) {
  Backend& backend = table.device.backend();
  Stream& stream = table.device.stream();
  HostMatrix counts(DType::kFloat64, kSequences, kE), scores(DType::kFloat64, kSequences, kE);
  HostMatrix lse_squares(DType::kFloat64, 1, 1), entropy(DType::kFloat64, 1, 1), all_counts(DType::kFloat64, 1, kE);
  lse_squares.fill(0);
  entropy.fill(0);
  all_counts.fill(0);
  backend.router_statistics({.logits = r.logits.view(),
                             .choices = r.choices.view(),
                             .counts = counts.mut(),
                             .scores = scores.mut(),
                             .lse_squares = lse_squares.mut(),
                             .entropy = entropy.mut(),
                             .all_counts = all_counts.mut(),
                             .sequence_rows = kSequenceRows},
                            stream);
  const auto statistics = table.device.take();
  constexpr int64_t kBlocks = kSequences * ((kSequenceRows + 31) / 32), kSums = kBlocks * (2 * kE + 2) * 8;
  table.add("router_partials", "logits four times, choices; sums of 32 rows, four sectors cut", 4 * kLogits + kNumbers,
            kSums + 4 * kBlocks * kSector, statistics);
  // A thread adds two columns, and writes each with an instruction of its own.
  table.add("router_sums", "sums of 32 rows, counts twice; counts, scores, twice a sector",
            kSums + kBlocks * kE * 8 + 2 * kE * 8, 2 * (2 * kSequences + 1) * kE * 8, statistics, true);
  HostMatrix balance(DType::kFloat32, kSequences, kE), loss(DType::kFloat64, 1, 1);
  loss.fill(0);
  const DeviceStruct<StepScalars> scalars;
  backend.balance_loss({.counts = counts.view(),
                        .scores = scores.view(),
                        .balance = balance.mut(),
                        .loss = loss.mut(),
                        .scalars = scalars.view(),
                        .factor = 0.01,
                        .loss_factor = 1},
                       stream);
  table.add("balance_loss", "counts twice, scores, a scalar a warp; balance", 3 * kSequences * kE * 8 + 16 * kSector,
            kSequences * kE * 4, table.device.take());
  HostMatrix bias(DType::kFloat32, 1, kE), previous(DType::kFloat32, 1, kE);
  bias.fill(0);
  const DeviceStruct<ClipState> clip;
  backend.balance_update({.counts = all_counts.view(),
                          .selection_bias = bias.mut(),
                          .previous_counts = previous.mut(),
                          .clip = clip.view(),
                          .rate = 1e-3},
                         stream);
  table.add("balance_update", "counts three times, bias, whether to skip; bias, counts",
            3 * kE * 8 + kE * 4 + 8 * kSector, 2 * kE * 4, table.device.take());
}

void measure_sort(RouterTable& table, const Routed& r) {
  HostMatrix offsets(DType::kInt32, 1, kE + 1), slots(DType::kInt32, kN, kChoices);
  table.device.backend().sort_choices(
      {.choices = r.choices.view(), .offsets = offsets.mut(), .slots = slots.mut(), .first_expert = 0},
      table.device.stream());
  const auto sort = table.device.take();
  constexpr int64_t kChunks = (kN * kChoices + 255) / 256, kPairs = kE * kChunks;
  table.add("count_choices", "choices; a sector for each expert of 256 choices", kNumbers, kPairs * kSector, sort,
            true);
  table.add("add_counts", "counts; counts, a sector an expert", kPairs * 4, kPairs * 4 + kE * kSector, sort);
  table.add("assign_slots", "choices, a sector for each expert of 256 choices; slots", kNumbers + kPairs * kSector,
            kNumbers, sort, true);
}

}  // namespace

std::vector<KernelRow> measure_routers() {
  RouterTable table;
  Routed routed;
  measure_route(table, routed);
  measure_balance(table, routed);
  measure_sort(table, routed);
  return std::move(table.rows);
}

}  // namespace ashlar::evidence
