// What ranks tell each other once a step: merged as the fields say, in one tree operation, beside the gradient norm.
#include "launch/training/step_all_reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "tests/layouts/axes.h"
#include "tests/layouts/meshes.h"
#include "tests/layouts/on_mesh.h"

namespace ashlar::testing {
namespace {

using training::SaveState;
using training::StepExchange;
using training::StepMessage;

/// A rank's own part of what is told by rank.
std::vector<double> of_rank(int rank, int size) {
  std::vector<double> ms(static_cast<size_t>(size));
  ms[static_cast<size_t>(rank)] = 3.5 + rank;
  return ms;
}

TEST(StepMessages, AreMerged) {
  comm::ControlPlane& ranks = bootstrap().control();
  const int rank = ranks.rank(), size = ranks.size();
  const StepMessage all = StepExchange(ranks, {.losses = {.loss = 1.5 * rank,
                                                          .z_loss = 0.25,
                                                          .log_z = -2.0 * rank,
                                                          .max_log_z = 1.0 + rank,
                                                          .max_logit = -3.0 - rank,
                                                          .valid = 10 + rank},
                                               .stop = rank == 0 ? 75 : 0,
                                               .save = rank == size - 1 ? SaveState::kWriting : SaveState::kDone,
                                               .peak_memory_bytes = int64_t{1} << (30 + rank),
                                               .next = {.tokens = 100, .valid_targets = rank},
                                               .next_data_wait_ms = 0.5 * rank,
                                               .slowest = {.rank = rank, .ms = rank == size / 2 ? 7.25 : 7.0},
                                               .rank_ms = of_rank(rank, size)})
                              .wait();
  const int pairs = size * (size - 1) / 2;  // the sum of all ranks
  EXPECT_EQ(all.losses.loss, 1.5 * pairs);
  EXPECT_EQ(all.losses.z_loss, 0.25 * size);
  EXPECT_EQ(all.losses.log_z, -2.0 * pairs);
  EXPECT_EQ(all.losses.max_log_z, size);
  EXPECT_EQ(all.losses.max_logit, -3.0);
  EXPECT_EQ(all.losses.valid, 10 * size + pairs);
  EXPECT_EQ(all.stop, 75);
  EXPECT_EQ(all.save, SaveState::kWriting);
  EXPECT_EQ(all.peak_memory_bytes, int64_t{1} << (29 + size));
  EXPECT_EQ(all.next.tokens, 100 * size);
  EXPECT_EQ(all.next.valid_targets, pairs);
  EXPECT_EQ(all.next_data_wait_ms, 0.5 * (size - 1));
  EXPECT_EQ(all.slowest.rank, size / 2);
  EXPECT_EQ(all.slowest.ms, 7.25);
  ASSERT_EQ(all.rank_ms.size(), static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) EXPECT_EQ(all.rank_ms[static_cast<size_t>(r)], 3.5 + r);
  const StepMessage untold = StepExchange(ranks, {}).wait();
  EXPECT_EQ(untold.slowest.rank, -1);
  EXPECT_TRUE(untold.rank_ms.empty());
  for (const SaveState last : {SaveState::kDone, SaveState::kWriting, SaveState::kFailed}) {
    const SaveState mine = rank == size / 2 ? last : std::min(last, SaveState::kDone);
    EXPECT_EQ(StepExchange(ranks, {.save = mine}).wait().save, last);
  }
}

// A step in parts has the numbers of forward_backward, and one message.
TEST(StepMessages, OneForAStep) {
  model::ModelConfig config = config_of({.name = "Step"});
  config.n_layers = 9;
  TinyModel source(config, DType::kFloat32, 2, 16);
  const std::vector<pipeline::MicroBatch> batches(4, {.view = source.batch(), .valid_targets = 7});
  for (const mesh::MeshShape& shape : meshes(bootstrap().world().size())) {
    if (shape.ranks() != bootstrap().world().size()) continue;
    SCOPED_TRACE(name_of(shape));
    OnMesh on(shape, config, DType::kFloat32, {});
    on.engine.initialize();
    const training::StepResult whole = on.engine.forward_backward(batches, 3);
    const training::StepCounts counts{.tokens = whole.tokens, .valid_targets = whole.valid_targets};
    comm::ControlPlane& control = on.mesh.control();
    on.engine.wait_param_sync();
    const comm::Traffic before = control.engine()->control_traffic();
    on.engine.backward(batches, 3, counts);
    on.engine.reduce_norm();
    const training::StepReport report = on.engine.take_report();
    StepExchange exchange(control, {.losses = report.losses, .next = on.engine.own_counts(batches)});
    const StepMessage all = exchange.wait();
    const auto sent = control.engine()->control_traffic().messages - before.messages;
    const training::StepResult parts = on.engine.result_of(report, all, counts);
    EXPECT_EQ(parts.loss, whole.loss);
    EXPECT_EQ(parts.z_loss, whole.z_loss);
    EXPECT_EQ(parts.max_logit, whole.max_logit);
    EXPECT_EQ(parts.grad_norm, whole.grad_norm);
    EXPECT_EQ(all.next.tokens, shape[Axis::kReplica] * 4 * 2 * 16);
    EXPECT_EQ(all.next.valid_targets, shape[Axis::kReplica] * 4 * 7);
    EXPECT_EQ(whole.valid_targets, shape[Axis::kReplica] * 4 * 7);
    EXPECT_LE(sent, std::bit_width(static_cast<unsigned>(control.size() - 1)) + 1);
    EXPECT_EQ(on.engine.schedules_made(), 1) << "of two equal steps";
  }
}

}  // namespace
}  // namespace ashlar::testing
