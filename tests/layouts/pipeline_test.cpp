// Every schedule on every pipeline x data x tensor layout of this many ranks, against one rank that runs the whole
// model micro-batch by micro-batch: gradients equal to the bit where nothing is split but the layers.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/base/strings.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/one_rank.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/ranks.h"
#include "tests/support/sanitizers.h"

namespace ashlar::testing {
namespace {

constexpr int64_t kMostTurns = 6;

struct PipelineCase {
  Axes axes;
  pipeline::PipelineSchedule kind;
  int64_t virtual_stages;
  int64_t micro_batches;
  DType dtype;
  int64_t turn;  ///< chooses the layouts
};
std::ostream& operator<<(std::ostream& out, const PipelineCase& c) {
  return out << c.axes.name << " " << pipeline::name_of(c.kind) << " " << c.dtype << ", " << c.micro_batches
             << " micro-batches";
}

class PipelineGradients : public ::testing::TestWithParam<PipelineCase> {
 protected:
  void expect_equal(int64_t pipeline, int64_t data, int64_t tensor, bool sequence_parallel) {
    const auto& [axes, kind, virtual_stages, micro_batches, dtype, turn] = GetParam();
    SCOPED_TRACE(
        str_cat("pipeline ", pipeline, " x data ", data, " x tensor ", tensor, sequence_parallel ? " sequence" : ""));
    LayoutCase c{.config = config_of(axes),
                 .recompute = axes.recompute,
                 .dtype = dtype,
                 .mesh = {{Axis::kPipeline, pipeline}, {Axis::kReplica, data}, {Axis::kTensor, tensor}},
                 .sequence_parallel = sequence_parallel,
                 .schedule = kind,
                 .micro_batches = micro_batches};
    c.config.n_layers = 9;  // eight stages divide it unevenly
    if (pipeline > 1 && pipeline * virtual_stages <= c.config.n_layers) c.virtual_stages = virtual_stages;
    expect_numbers_of_one_rank(bootstrap().world(), c);
  }
};

/// Under the sanitizers two ranks take every second round of turns, and four ranks the others. Each model with each
/// schedule is there once; that they agree on both is proven without the sanitizers.
bool sanitized_case(int64_t turn, int ranks) { return (turn / kMostTurns) % 2 == (ranks < 4 ? 0 : 1); }

// Each schedule meets every layout, with models and dtypes that rotate; the long form takes the full product. Four
// ranks have eight layouts and eight ranks twelve, each of which costs as many times one rank's numbers.
TEST_P(PipelineGradients, AreThoseOfOneRank) {
  const int ranks = bootstrap().world().size();
  if (under_address_sanitizer() && !long_form() && !sanitized_case(GetParam().turn, ranks))
    GTEST_SKIP() << "under the sanitizers on another number of ranks";
  const int64_t turns = ranks < 4 ? kMostTurns / 2 : kMostTurns;
  int64_t layout = 0;
  const auto chosen = [&] { return long_form() || layout++ % turns == GetParam().turn % turns; };
  for (int64_t pipeline = 1; pipeline <= ranks; ++pipeline) {
    for (int64_t data = 1; data <= ranks / pipeline; ++data) {
      if (ranks % (pipeline * data) != 0 || !chosen()) continue;
      expect_equal(pipeline, data, ranks / (pipeline * data), false);
      if (HasFailure()) return;
    }
  }
  for (const int64_t pipeline : {1, 2})
    if (ranks >= 4 && chosen()) expect_equal(pipeline, ranks / (2 * pipeline), 2, true);
}

// Axes rotate over schedules: each schedule meets every axis and both dtypes, without the full product.
std::vector<PipelineCase> pipeline_cases() {
  using enum pipeline::PipelineSchedule;
  const std::pair<pipeline::PipelineSchedule, int64_t> kSchedules[] = {
      {kGpipe, 1}, {k1F1B, 1}, {kInterleaved, 2}, {kZbH1, 1}};
  std::vector<PipelineCase> all;
  int64_t numbers = 0;
  std::map<pipeline::PipelineSchedule, int64_t> turns;  // of each schedule
  const auto add = [&](bool experts) {
    for (const auto& [kind, chunks] : kSchedules) {
      for (const Axes& axes : kAxes) {
        if ((axes.moe.experts > 0) != experts) continue;
        const int64_t number = numbers++;
        if (number % 2 == 1 && kind == kGpipe) continue;
        all.push_back({.axes = axes,
                       .kind = kind,
                       .virtual_stages = chunks,
                       .micro_batches = 1 + (number * 5) % 7,
                       .dtype = number % 5 < 2 ? DType::kFloat64 : DType::kFloat32,
                       .turn = turns[kind]++});
      }
    }
  };
  add(false);
  add(true);
  return all;
}

TEST(PipelineCases, OfEachScheduleTakeEveryTurn) {
  std::map<pipeline::PipelineSchedule, std::set<int64_t>> turns;
  for (const PipelineCase& c : pipeline_cases()) turns[c.kind].insert(c.turn % kMostTurns);
  for (const auto& [kind, taken] : turns) EXPECT_EQ(std::ssize(taken), kMostTurns) << pipeline::name_of(kind);
  for (const int ranks : {2, 4}) {
    turns.clear();
    for (const PipelineCase& c : pipeline_cases())
      if (sanitized_case(c.turn, ranks)) turns[c.kind].insert(c.turn % kMostTurns);
    EXPECT_EQ(std::ssize(turns), 4);
    for (const auto& [kind, taken] : turns) EXPECT_EQ(std::ssize(taken), kMostTurns) << pipeline::name_of(kind);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PipelineGradients, ::testing::ValuesIn(pipeline_cases()), [](const auto& at) {
  std::string kind(pipeline::name_of(at.param.kind));
  std::erase(kind, '-');
  return str_cat(at.param.axes.name, "_", kind, "_", name_of(at.param.dtype), "_", at.param.micro_batches);
});

}  // namespace
}  // namespace ashlar::testing
