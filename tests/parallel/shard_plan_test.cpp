// Who keeps what of the optimizer's state: parts of flat buffers as data, and the optimizer on parts against the whole
// one.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/backend/common.h"
#include "core/nn/init.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/save.h"
#include "parallel/zero/shard_plan.h"
#include "tests/parallel/checkpoint_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::testing {
namespace {

mesh::MeshShape replicas(int64_t ranks) { return {{Axis::kReplica, ranks}}; }

TEST(ShardPlan, RanksTileTheBuffersWhateverTheirNumberAndTheBuckets) {
  CheckpointModel model(DType::kFloat32);
  const auto& store = model.store();
  for (const int64_t ranks : {1, 2, 3, 5, 64}) {
    for (const int64_t bucket_elems : {1, 700, 100'000}) {
      SCOPED_TRACE(str_cat(ranks, " ranks, buckets of ", bucket_elems));
      const zero::ShardPlan plan = zero::make_plan(store, {.mesh = replicas(ranks), .bucket_elems = bucket_elems});
      std::vector<int> owners(store.flat_size(), 0);
      std::vector<int64_t> held(store.sharded_tensors().size(), 0);
      for (int64_t r = 0; r < ranks; ++r) {
        const nn::FlatRanges owned = plan.owned_by(replicas(ranks), {{Axis::kReplica, r}});
        int64_t packed = 0;
        for (const nn::FlatRange& part : owned.all()) {
          EXPECT_EQ(part.packed_at, packed);
          packed += part.size;
          for (int64_t i = part.begin; i < part.end(); ++i) ++owners[i];
        }
        EXPECT_EQ(owned.packed_size(), packed);
        for (const nn::ShardedRange& range : nn::sharded_ranges(store, owned))
          held[range.ref - store.sharded_tensors().data()] += range.size;
      }
      EXPECT_EQ(std::set<int>(owners.begin(), owners.end()), std::set<int>{1});
      for (size_t i = 0; i < held.size(); ++i) EXPECT_EQ(held[i], store.sharded_tensors()[i].tensor->size());
      for (const zero::Bucket& bucket : plan.buckets) {
        EXPECT_TRUE(bucket.size <= bucket_elems || bucket.last_parameter == bucket.first_parameter + 1) << bucket.size;
      }
    }
  }
}

// The replica with the most sets the pace of all: nobody waits for the last one's remainder.
TEST(ShardPlan, PartsAreEqualWhateverTheNumberOfReplicas) {
  nn::ParameterStore store;
  for (int i = 0; i < 64; ++i) {
    const std::string name = str_cat("matrix", i);
    store.add(name, {4099, 32771}, {{.name = name, .global_shape = {4099, 32771}, .rows = 4099, .cols = 32771}});
  }
  store.arrange();
  for (const int64_t ranks : {2, 3, 7, 8, 48, 64, 255, 256, 1000, 1023, 1024, 3001, 4096}) {
    SCOPED_TRACE(str_cat(ranks, " ranks"));
    for (const zero::Bucket& bucket : zero::make_plan(store, {.mesh = replicas(ranks)}).buckets) {
      const int64_t each = bucket.parts.front().size();
      if (bucket.size > zero::default_bucket_elems(ranks) / 2) {
        EXPECT_EQ(each % 8, 0) << "16 bytes of bf16";
      }
      for (const comm::Range& part : bucket.parts) {
        EXPECT_GE(part.size(), each);
        EXPECT_LE(static_cast<double>(part.size()), 1.1 * static_cast<double>(each)) << "from " << part.begin;
      }
    }
  }
}

TEST(ShardPlan, WhatRemainsOfAShortBucketIsLessThanAnElementAReplica) {
  nn::ParameterStore store;
  store.add("short", {100, 97}, {{.name = "short", .global_shape = {100, 97}, .rows = 100, .cols = 97}});
  store.arrange();
  for (const int64_t ranks : {32, 64, 1000}) {
    const zero::Bucket bucket = zero::make_plan(store, {.mesh = replicas(ranks)}).buckets.at(0);
    EXPECT_LT(bucket.parts.back().size() - bucket.parts.front().size(), ranks) << ranks << " ranks";
    EXPECT_EQ(bucket.parts.front().size(), bucket.size / ranks) << ranks << " ranks";
  }
}

TEST(ShardPlan, WholeTensorsBelongToOneRankEach) {
  CheckpointModel model(DType::kFloat32);
  const auto& store = model.store();
  for (const int64_t ranks : {1, 2, 3, 5, 64}) {
    for (const int64_t bucket_elems : {1, 700, 100'000}) {
      SCOPED_TRACE(str_cat(ranks, " ranks, buckets of ", bucket_elems));
      const zero::PlanSpec spec{
          .mesh = replicas(ranks), .bucket_elems = bucket_elems, .shard_unit = optim::ShardUnit::kTensor};
      const zero::ShardPlan plan = zero::make_plan(store, spec);
      EXPECT_EQ(zero::make_plan(store, spec).buckets, plan.buckets);
      std::vector<int> owners(store.flat_size(), 0);
      std::vector<int> held(store.sharded_tensors().size(), 0);
      for (int64_t r = 0; r < ranks; ++r) {
        const nn::FlatRanges owned = plan.owned_by(replicas(ranks), {{Axis::kReplica, r}});
        for (const nn::FlatRange& part : owned.all())
          for (int64_t i = part.begin; i < part.end(); ++i) ++owners[i];
        for (const nn::ShardedRange& range : nn::sharded_ranges(store, owned)) {
          EXPECT_EQ(range.size, range.ref->tensor->size()) << range.ref->tensor->name;
          ++held[range.ref - store.sharded_tensors().data()];
        }
      }
      EXPECT_EQ(std::set<int>(owners.begin(), owners.end()), std::set<int>{1});
      EXPECT_EQ(std::set<int>(held.begin(), held.end()), std::set<int>{1});
    }
  }
}

// A matrix of eight units and sixteen of one: buckets of one parameter are dealt out, buckets of several cut inside.
TEST(ShardPlan, WholeTensorsAreSharedOutEvenly) {
  constexpr int64_t kUnit = 640;
  nn::ParameterStore store;
  const auto add = [&](const std::string& name, int64_t units) {
    store.add(name, {units, kUnit}, {{.name = name, .global_shape = {units, kUnit}, .rows = units, .cols = kUnit}});
  };
  for (int i = 0; i < 5; ++i) add(str_cat("before", i), 1);
  add("large", 8);
  for (int i = 0; i < 11; ++i) add(str_cat("behind", i), 1);
  store.arrange();
  for (const int64_t bucket_units : {1, 4}) {
    const zero::ShardPlan plan = zero::make_plan(
        store, {.mesh = replicas(3), .bucket_elems = bucket_units * kUnit, .shard_unit = optim::ShardUnit::kTensor});
    for (int64_t r = 0; r < 3; ++r)
      EXPECT_EQ(plan.owned_by(replicas(3), {{Axis::kReplica, r}}).packed_size(), 8 * kUnit)
          << "rank " << r << ", buckets of " << bucket_units;
  }
}

TEST(ShardPlan, AParameterThatOtherRanksShareIsCutByItself) {
  nn::ParameterStore with_bias;
  nn::ParameterStore without;
  const auto tensor = [](const char* name, int64_t rows, int64_t cols, AxisSet axes) {
    return nn::ShardedTensor{.name = name,
                             .global_shape = {rows, cols},
                             .rows = rows,
                             .cols = cols,
                             .axes = nn::replicated_and_summed_over(axes)};
  };
  with_bias.add("bias", {1, 1000}, {tensor("bias", 1, 1000, {})});
  with_bias.add("shared with others", {30, 50}, {tensor("shared with others", 30, 50, Axis::kPipeline)});
  for (nn::ParameterStore* store : {&with_bias, &without}) {
    store->add("a", {10, 20}, {tensor("a", 10, 20, {})});
    store->add("shared", {9, 50}, {tensor("shared", 5, 50, Axis::kTensor), tensor("shared2", 4, 50, Axis::kTensor)})
        .tensors.back()
        .storage_row = 5;
    store->add("b", {10, 20}, {tensor("b", 10, 20, {})});
    store->arrange();
  }
  const auto parts_of_shared = [](const nn::ParameterStore& store, optim::ShardUnit shard_unit) {
    for (const zero::Bucket& bucket : zero::make_plan(store, {.mesh = replicas(3), .shard_unit = shard_unit}).buckets)
      if (store.parameters()[bucket.first_parameter]->name == "shared") return bucket.parts;
    return std::vector<comm::Range>();
  };
  EXPECT_EQ(zero::make_plan(without, {.mesh = replicas(3)}).buckets.size(), 3U);
  for (const optim::ShardUnit shard_unit : {optim::ShardUnit::kElement, optim::ShardUnit::kTensor}) {
    EXPECT_FALSE(parts_of_shared(without, shard_unit).empty());
    EXPECT_EQ(parts_of_shared(without, shard_unit), parts_of_shared(with_bias, shard_unit));
  }
}

// The norms of a layer lie between its matrices: each by itself would be a message of a few kilobytes.
TEST(ShardPlan, VectorsThatTheSameRanksShareLeaveTogether) {
  nn::ParameterStore store;
  const auto vector = [](const std::string& name, const nn::TensorAxes& axes) {
    return nn::ShardedTensor{.name = name, .global_shape = {30}, .rows = 1, .cols = 30, .axes = axes};
  };
  // Of all tensor ranks, and of those that hold the same part.
  const nn::TensorAxes whole = nn::replicated_and_summed_over(Axis::kTensor);
  nn::TensorAxes some = whole;
  some.sharded_over = Axis::kTensor;
  for (const std::string layer : {"0.", "1.", "2."}) {
    store.add(layer + "norm", {30}, {vector(layer + "norm", whole)});
    store.add(layer + "matrix", {20, 30},
              {{.name = layer + "matrix", .global_shape = {20, 30}, .rows = 20, .cols = 30}});
    store.add(layer + "bias", {30}, {vector(layer + "bias", {})});
    store.add(layer + "kv", {60}, {vector(layer + "q", {}), vector(layer + "k", some)});
    store.add(layer + "other", {30}, {vector(layer + "other", some)});
  }
  store.arrange();
  std::vector<std::string> buckets;
  for (const zero::Bucket& bucket : zero::make_plan(store, {.mesh = replicas(3), .bucket_elems = 1000}).buckets) {
    std::string names;
    for (size_t i = bucket.first_parameter; i < bucket.last_parameter; ++i)
      names += store.parameters()[i]->name + (i + 1 < bucket.last_parameter ? " " : "");
    buckets.push_back(names);
  }
  EXPECT_EQ(buckets, (std::vector<std::string>{"0.norm 1.norm 2.norm", "0.other 1.other 2.other", "0.matrix 0.bias",
                                               "0.kv", "1.matrix 1.bias", "1.kv", "2.matrix 2.bias", "2.kv"}));
}

// Experts are cut over ranks that are replicas for all else.
TEST(ShardPlan, EachParameterIsDividedAmongItsOwnReplicas) {
  nn::ParameterStore store;
  const nn::TensorAxes of_experts{.sharded_over = Axis::kExpert,
                                  .replicated_over = {Axis::kReplica, Axis::kContext},
                                  .grad_summed_over = {Axis::kReplica, Axis::kContext}};
  for (const std::string layer : {"0.", "1."}) {
    store.add(layer + "dense", {20, 30}, {{.name = layer + "dense", .global_shape = {20, 30}, .rows = 20, .cols = 30}});
    store.add(layer + "experts", {10, 30},
              {{.name = layer + "experts", .global_shape = {40, 30}, .rows = 10, .cols = 30, .axes = of_experts}});
  }
  store.arrange();
  std::vector<bool> of_expert(static_cast<size_t>(store.flat_size()));
  for (const auto& parameter : store.parameters())
    for (int64_t i = 0; i < parameter->shape.size(); ++i)
      of_expert[static_cast<size_t>(parameter->flat_offset + i)] = parameter->name.ends_with("experts");
  const mesh::MeshShape shape{{Axis::kReplica, 3}, {Axis::kExpert, 4}};
  for (const optim::ShardUnit shard_unit : {optim::ShardUnit::kElement, optim::ShardUnit::kTensor}) {
    const zero::ShardPlan plan = zero::make_plan(store, {.mesh = shape, .shard_unit = shard_unit});
    for (const zero::Bucket& bucket : plan.buckets) {
      const bool dense = store.parameters()[bucket.first_parameter]->name.ends_with("dense");
      EXPECT_EQ(bucket.parts.size(), dense ? 12U : 3U);
      for (size_t i = bucket.first_parameter; i < bucket.last_parameter; ++i)
        EXPECT_EQ(store.parameters()[i]->name.ends_with("dense"), dense) << "one bucket for both";
    }
    // Every element of a dense weight has one owner of all twelve, of an expert's one of its three replicas.
    for (int64_t expert = 0; expert < 4; ++expert) {
      std::vector<int> owners(static_cast<size_t>(store.flat_size()), 0);
      for (int64_t r = 0; r < shape.ranks(); ++r) {
        const mesh::Coordinates at = mesh::coordinates_of(shape, r);
        const nn::FlatRanges owned = plan.owned_by(shape, at);
        for (const nn::FlatRange& part : owned.all()) {
          for (int64_t i = part.begin; i < part.end(); ++i)
            owners[static_cast<size_t>(i)] += of_expert[static_cast<size_t>(i)] && at[Axis::kExpert] != expert ? 0 : 1;
        }
      }
      for (const auto& parameter : store.parameters())
        for (int64_t i = 0; i < parameter->shape.size(); ++i)
          ASSERT_EQ(owners[static_cast<size_t>(parameter->flat_offset + i)], 1)
              << parameter->name << " " << i << " of experts " << expert
              << (shard_unit == optim::ShardUnit::kTensor ? ", whole tensors" : "");
    }
  }
}

TEST(FlatRanges, ARangeIsAtMostThreeRectanglesThatHoldItsElementsInOrder) {
  std::mt19937_64 random(3);
  const auto upto = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int trial = 0; trial < 2000; ++trial) {
    nn::ShardedTensor tensor{
        .name = "p", .global_row = upto(5), .global_col = upto(5), .rows = 1 + upto(6), .cols = 1 + upto(7)};
    tensor.global_shape = {tensor.global_row + tensor.rows + upto(3), tensor.global_col + tensor.cols + upto(3)};
    const nn::ParameterStore::ShardedTensorRef ref{.parameter = nullptr, .tensor = &tensor, .flat_begin = 0};
    const int64_t first = upto(tensor.size());
    const nn::ShardedRange range{.ref = &ref, .first = first, .size = 1 + upto(tensor.size() - first)};
    const std::vector<nn::RangeBlock> blocks = nn::blocks_of(range);
    ASSERT_LE(blocks.size(), 3U);
    int64_t at = 0;
    for (const nn::RangeBlock& block : blocks) {
      ASSERT_EQ(block.offset, at);
      ASSERT_GT(block.rows * block.cols, 0);
      for (int64_t r = 0; r < block.rows; ++r) {
        for (int64_t c = 0; c < block.cols; ++c, ++at) {
          ASSERT_EQ(block.row + r, tensor.global_row + (first + at) / tensor.cols);
          ASSERT_EQ(block.col + c, tensor.global_col + (first + at) % tensor.cols);
        }
      }
    }
    ASSERT_EQ(at, range.size);
  }
}

class ShardedOptimizer : public ::testing::TestWithParam<DType> {
 protected:
  std::string bytes_of(CheckpointModel& model, const nn::FlatTensor& buffer, const nn::ShardedRange& range) const {
    return model.bytes_of(buffer.of(range));
  }
  /// What `part` holds of master, moments and values is what `whole` holds there.
  void expect_part_of(CheckpointModel& part, const optim::Optimizer& state, CheckpointModel& whole) const {
    const optim::Optimizer& all = whole.optimizer();
    for (const nn::ShardedRange& range : state.ranges()) {
      // The same elements of the whole state, whose packed tensors are laid out like the flat buffers.
      nn::ShardedRange same = range;
      same.packed_at = range.flat_begin;
      const std::string& name = range.ref->tensor->name;
      EXPECT_EQ(bytes_of(part, state.master(), range), bytes_of(whole, all.master(), same)) << name;
      for (const auto& [state_name, tensor] : state.state())
        EXPECT_EQ(bytes_of(part, tensor, range), bytes_of(whole, all.state(state_name.suffix), same)) << name;
      EXPECT_EQ(bytes_of(part, {.data = part.store().values()}, range),
                bytes_of(whole, {.data = whole.store().values()}, same))
          << name;
    }
  }
};

TEST_P(ShardedOptimizer, StartsAndStepsLikeTheWholeOne) {
  const auto start_and_step = [&](CheckpointModel& model, optim::Optimizer& optimizer) {
    Ctx ctx = model.ctx();
    const Tensor scalars = ctx.make_struct(StepScalars{.lr = 0.01, .beta1_correction = 0.1, .beta2_correction = 0.05});
    const Tensor clip = ctx.make_struct(ClipState{.clip_scale = 0.7});
    ctx.scalars = scalars.view();
    optimizer.initialize(ctx, 5);
    for (const uint64_t seed : {1, 2, 3}) {
      model.store().initialize(ctx, seed, model.store().grads());
      optimizer.step(ctx, clip.view());
    }
  };
  const std::vector<nn::ShardedTensor> tensors = [] {
    std::vector<nn::ShardedTensor> made;
    for (const auto& [name, rows, cols] : {std::tuple{"a", 7, 30}, {"b", 40, 9}, {"c", 1, 500}}) {
      made.push_back({.name = name, .global_shape = {rows, cols}, .rows = rows, .cols = cols});
      made.back().init = {.kind = nn::InitRule::Kind::kNormal, .value = 0.3};
    }
    return made;
  }();
  CheckpointModel whole(GetParam(), tensors);
  start_and_step(whole, whole.optimizer());
  for (int64_t rank = 0; rank < 3; ++rank) {
    SCOPED_TRACE(rank);
    CheckpointModel part(GetParam(), tensors);
    const zero::ShardPlan plan = zero::make_plan(part.store(), {.mesh = replicas(3), .bucket_elems = 300});
    const auto made =
        optim::make_optimizer(part.ctx(), part.store(), {}, plan.owned_by(replicas(3), {{Axis::kReplica, rank}}));
    optim::Optimizer& state = *made;
    start_and_step(part, state);
    expect_part_of(part, state, whole);
    EXPECT_LT(state.state("m").data.size(), whole.optimizer().state("m").data.size() / 2);
  }
}

TEST_P(ShardedOptimizer, LoadsItsPartOfACheckpoint) {
  const ScratchDir dir;
  CheckpointModel whole(GetParam());
  whole.randomize(8);
  const auto saved = checkpoint::save(whole.ctx(), {.ranks = whole.ranks(),
                                                    .run_dir = dir.path(),
                                                    .store = whole.store(),
                                                    .optimizer = &whole.optimizer(),
                                                    .state = state_at(3)});
  for (int64_t rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    CheckpointModel part(GetParam());
    const zero::ShardPlan plan = zero::make_plan(part.store(), {.mesh = replicas(4), .bucket_elems = 200});
    const auto made =
        optim::make_optimizer(part.ctx(), part.store(), {}, plan.owned_by(replicas(4), {{Axis::kReplica, rank}}));
    optim::Optimizer& state = *made;
    checkpoint::CheckpointReader reader(saved.path);
    EXPECT_EQ(checkpoint::load_training(
                  part.ctx(), {.ranks = part.ranks(), .reader = reader, .store = part.store(), .optimizer = &state}),
              state_at(3));
    expect_part_of(part, state, whole);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, ShardedOptimizer,
                         ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat64),
                         [](const auto& param) { return std::string(name_of(param.param)); });

}  // namespace
}  // namespace ashlar::testing
