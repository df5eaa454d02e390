// Who holds the same part of a tensor, found by its slices: groups, main replicas and sums on meshes of every kind, and
// parameters that have replicas of their own.
#include "parallel/zero/shared_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/optim/optimizer.h"
#include "parallel/zero/data_parallel.h"
#include "parallel/zero/global_norm.h"
#include "tests/layouts/on_mesh.h"

namespace ashlar::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A store without a model: what a rank holds is what the test says.
class Sharing : public ::testing::Test {
 protected:
  /// Rows [begin, begin + rows) of a tensor of `of` rows and two columns.
  static nn::ShardedTensor rows_of(const std::string& name, int64_t begin, int64_t rows, int64_t of,
                                   const nn::TensorAxes& axes) {
    return {.name = name, .global_shape = {of, 2}, .global_row = begin, .rows = rows, .cols = 2, .axes = axes};
  }
  void add(const nn::ShardedTensor& tensor) { store_.add(tensor.name, {tensor.rows, tensor.cols}, {tensor}); }
  void allocate() { store_.allocate(ctx_, true); }
  void set_gradients(double value) {
    ctx_.backend.fill({.dst = store_.grads().mut_view(), .value = value}, ctx_.stream);
  }
  double gradient(const std::string& name) {
    return host_values(ctx_, nn::ParameterStore::of(store_.grads(), *store_.find(name))).front();
  }
  bool main(const std::string& name) { return store_.find(name)->tensor->main_replica; }
  std::vector<nn::ShardedRange> everything() { return nn::sharded_ranges(store_, nn::FlatRanges::whole(store_)); }

  comm::Communicator& world_ = bootstrap().world();
  const int64_t ranks_ = world_.size();
  const std::unique_ptr<Backend> backend_ = kernels::make_backend({.threads = 1});
  const std::unique_ptr<Stream> stream_ = backend_->make_stream();
  Ctx ctx_{.backend = *backend_, .stream = *stream_, .dtype = DType::kFloat64, .scalars = {}};
  nn::ParameterStore store_;
};

TEST_F(Sharing, IsFoundByTheSliceThatRanksHold) {
  if (ranks_ < 4) GTEST_SKIP() << "4 ranks are needed";
  mesh::Mesh mesh(world_, {{Axis::kTensor, ranks_}});
  const int64_t me = world_.rank();
  nn::TensorAxes some = nn::replicated_and_summed_over(Axis::kTensor);
  some.sharded_over = Axis::kTensor;
  add(rows_of("whole", 0, 4, 4, nn::replicated_and_summed_over(Axis::kTensor)));
  add(rows_of("alike", 0, 4, 4, nn::replicated_over(Axis::kTensor)));
  add(rows_of("pairs", me / 2, 1, ranks_ / 2, some));
  add(rows_of("halves", me / (ranks_ / 2), 1, 2, some));
  add(rows_of("own", me, 1, ranks_, nn::kTensorSharded));
  allocate();
  const zero::SharedTensors shared(store_, mesh);
  EXPECT_EQ(main("whole"), me == 0);
  EXPECT_EQ(main("alike"), me == 0);
  EXPECT_EQ(main("pairs"), me % 2 == 0);
  EXPECT_EQ(main("halves"), me % (ranks_ / 2) == 0);
  EXPECT_TRUE(main("own"));
  set_gradients(static_cast<double>(1 << me));
  shared.sum_gradients(ctx_, everything());
  const auto sum = [](int64_t first, int64_t n) { return static_cast<double>(((1 << n) - 1) << first); };
  EXPECT_EQ(gradient("whole"), sum(0, ranks_));
  EXPECT_EQ(gradient("alike"), 1 << me) << "complete on every rank already";
  EXPECT_EQ(gradient("pairs"), sum(me / 2 * 2, 2));
  EXPECT_EQ(gradient("halves"), sum(me / (ranks_ / 2) * (ranks_ / 2), ranks_ / 2));
  EXPECT_EQ(gradient("own"), 1 << me);
}

TEST_F(Sharing, OfStagesIsOfThoseThatHaveTheTensor) {
  if (ranks_ < 4) GTEST_SKIP() << "4 ranks are needed";
  // Four stages; with eight ranks two replicas of them, which do not mix.
  mesh::Mesh mesh(world_, {{Axis::kPipeline, 4}, {Axis::kReplica, ranks_ / 4}});
  const int64_t stage = mesh.at()[Axis::kPipeline];
  const nn::TensorAxes axes = nn::replicated_and_summed_over(Axis::kPipeline);
  if (stage == 0 || stage == 3) add(rows_of("ends", 0, 4, 4, axes));
  if (stage >= 1) add(rows_of("last three", 0, 4, 4, axes));
  if (stage == 2) add(rows_of("third", 0, 4, 4, axes));
  allocate();
  const zero::SharedTensors shared(store_, mesh);
  set_gradients(static_cast<double>((1 << stage) + 100 * mesh.index(Axis::kReplica)));
  shared.sum_gradients(ctx_, everything());
  const auto offset = static_cast<double>(100 * mesh.index(Axis::kReplica));
  if (stage == 0 || stage == 3) {
    EXPECT_EQ(gradient("ends"), 9 + 2 * offset);
    EXPECT_EQ(main("ends"), stage == 0);
  }
  if (stage >= 1) {
    EXPECT_EQ(gradient("last three"), 14 + 3 * offset);
    EXPECT_EQ(main("last three"), stage == 1);
  }
  if (stage == 2) {
    EXPECT_EQ(gradient("third"), 4 + offset) << "nobody else has it";
  }
}

TEST_F(Sharing, RanksThatDifferInItAreABug) {
  if (ranks_ < 2) GTEST_SKIP() << "2 ranks are needed";
  mesh::Mesh mesh(world_, {{Axis::kTensor, ranks_}});
  add(rows_of("x", 0, 4, 4,
              world_.rank() == 0 ? nn::replicated_over(Axis::kTensor) : nn::replicated_and_summed_over(Axis::kTensor)));
  allocate();
  try {
    const zero::SharedTensors shared(store_, mesh);
    FAIL() << "no error";
  } catch (const Bug& bug) {
    EXPECT_THAT(bug.what(), HasSubstr("x: ranks 0, 1"));
    EXPECT_THAT(bug.what(), HasSubstr("disagree on summing its gradient"));
  }
}

// A dense weight has all ranks for replicas; experts are cut over half of the axes, and their gradients are summed over
// the ranks that hold the same ones alone.
TEST_F(Sharing, AParameterHasReplicasOfItsOwn) {
  if (ranks_ < 4) GTEST_SKIP() << "4 ranks are needed";
  mesh::Mesh mesh(world_, {{Axis::kReplica, ranks_ / 2}, {Axis::kExpert, 2}});
  const int64_t expert = mesh.at()[Axis::kExpert];
  const AxisSet rest{Axis::kReplica, Axis::kContext};
  add(rows_of("dense", 0, 40, 40, {}));
  add(rows_of("experts", expert * 30, 30, 60,
              {.sharded_over = Axis::kExpert, .replicated_over = rest, .grad_summed_over = rest}));
  allocate();
  const zero::ShardPlan plan = zero::make_plan(store_, {.mesh = mesh.shape()});
  const auto optimizer = optim::make_optimizer(ctx_, store_, {}, plan.owned_by(mesh.shape(), mesh.at()));
  zero::DataParallel replicas(plan, store_, mesh, *stream_);
  const zero::GlobalNorm norm(ctx_, store_, optimizer->ranges(), mesh);
  for (int step = 0; step < 2; ++step) {
    replicas.begin_step(1);
    set_gradients(static_cast<double>(1 << world_.rank()));
    for (const auto& parameter : store_.parameters()) parameter->weight.contributions = 1;
    if (step == 1) replicas.poll();
    replicas.finish();
    double experts = 0;  // of the ranks with the same ones
    for (int64_t r = expert; r < ranks_; r += 2) experts += static_cast<double>(1 << r);
    for (const nn::ShardedRange& range : optimizer->ranges()) {
      const double expected = range.ref->tensor->name == "dense" ? static_cast<double>((1 << ranks_) - 1) : experts;
      for (const double g : host_values(ctx_, store_.grads().flat_range(range.flat_begin, range.size)))
        ASSERT_EQ(g, expected) << range.ref->tensor->name;
    }
    // Every element counts once: those of both halves of the experts.
    double odd = 0, even = 0;
    for (int64_t r = 0; r < ranks_; ++r) (r % 2 == 0 ? even : odd) += static_cast<double>(1 << r);
    const double all = static_cast<double>((1 << ranks_) - 1);
    EXPECT_THAT(norm.names(), ElementsAre("dense", "experts"));
    EXPECT_THAT(norm.sums_of(ctx_, {.data = store_.grads()}),
                ElementsAre(80 * all * all, 60 * even * even + 60 * odd * odd));
    // Weights go back to where they are held.
    for (const nn::ShardedRange& range : optimizer->ranges())
      upload(ctx_, part_of(element, "", *range.ref->tensor, range.first, range.size),
             store_.values().flat_range(range.flat_begin, range.size));
    replicas.start_param_sync();
    replicas.wait_param_sync();
    for (const auto& ref : store_.sharded_tensors())
      EXPECT_EQ(host_values(ctx_, nn::ParameterStore::of(store_.values(), ref)),
                part_of(element, "", *ref.tensor, 0, ref.tensor->size()))
          << ref.tensor->name;
  }
}

}  // namespace
}  // namespace ashlar::testing
