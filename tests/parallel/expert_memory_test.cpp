// What experts keep of a micro-batch for backward, and how many rows a rank of experts may get.
#include <gtest/gtest.h>

#include "parallel/model/experts.h"
#include "parallel/model/flops.h"
#include "tests/parallel/model_fixture.h"

namespace ashlar {
namespace {

using model::ModelConfig;

constexpr int64_t kRows = 32;

/// Bytes that a layer of experts keeps for backward, all that it allocates in whole blocks of 256 bytes.
int64_t kept_bytes(const ModelConfig& config, Recompute recompute) {
  const auto backend = kernels::make_backend({.threads = 1});
  const auto stream = backend->make_stream();
  Ctx ctx{.backend = *backend, .stream = *stream, .dtype = DType::kFloat64, .recompute = recompute, .scalars = {}};
  comm::SelfComm alone("tensor");
  const tensor::TensorParallel tp{.group = &alone};
  nn::ParameterStore store;
  store.expert_counts().set_size(config.expert_layers(), config.moe.experts);
  model::Experts branch(config, 0, tp);
  branch.add_inputs(store);
  branch.add_outputs(store);
  store.allocate(ctx, true);
  Tape tape(*backend, *stream);
  ctx.tape = &tape;
  Var x = tape.leaf(ctx.empty(DType::kFloat64, {kRows, config.d_model}));
  backend->fill({.dst = x.value.mut_view(), .value = 1}, *stream);
  const model::BatchView batch{.B = 2, .T = kRows / 2};
  const model::LayerTables tables;
  const ScoreChange scores;
  const model::Rows rows{.batch = batch, .tables = tables, .scores = scores};
  const Allocator& memory = backend->allocator(MemoryKind::kActivations);
  const int64_t before = memory.used_bytes();
  const Var y = branch.forward(ctx, x, rows, tp);
  return memory.used_bytes() - before;
}

TEST(ExpertMemory, IsWhatBackwardNeedsOfARow) {
  for (const bool gated : {true, false}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective}) {
      ModelConfig c = testing::tiny_config();
      c.d_model = 16;
      c.ffn.gated = gated;
      c.moe = {.experts = 8, .top_k = 2, .d_ff = 24};
      const int64_t two = kept_bytes(c, recompute);
      c.moe.top_k = 4;
      const int64_t four = kept_bytes(c, recompute);
      // A choice, its slot and its weight, beside the row.
      const int64_t row = 8 * model::expert_row_elements(c, 1, recompute == Recompute::kSelective) + 4 + 4 + 8;
      EXPECT_EQ(four - two, kRows * 2 * row) << gated << " " << name_of(recompute);
    }
  }
  ModelConfig c;
  c.d_model = 100;
  c.moe.d_ff = 60;
  EXPECT_EQ(model::expert_row_elements(c, 1, false), 2 * 100 + 3 * 60);
  EXPECT_EQ(model::expert_row_elements(c, 4, true), 2 * 100 + 2 * 15);
}

TEST(ExpertMemory, RowsOfARank) {
  const model::MoeConfig moe{.experts = 10, .top_k = 4};
  EXPECT_EQ(model::expert_rows(moe, 100, 1).balanced, 400);
  EXPECT_EQ(model::expert_rows(moe, 100, 1).most, 400) << "one rank has every expert";
  EXPECT_EQ(model::expert_rows(moe, 100, 2).balanced, 400);
  EXPECT_EQ(model::expert_rows(moe, 100, 2).most, 2 * 400) << "all choices of both ranks";
  // Some of 4 ranks have 3 experts, so a token can choose only 3 there.
  EXPECT_EQ(model::expert_rows(moe, 100, 4).most, 4 * 300);
  EXPECT_EQ(model::expert_rows(moe, 100, 10).most, 10 * 100);
}

}  // namespace
}  // namespace ashlar
