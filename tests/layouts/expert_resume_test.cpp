// A run with experts that moves to another division of them and back goes on as the one that stays, and to the bit
// where the mesh is the same.
#include <gtest/gtest.h>

#include <memory>

#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/save.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/meshes.h"
#include "tests/layouts/on_mesh.h"
#include "tests/layouts/train_steps.h"
#include "tests/support/ranks/shared_dir.h"

namespace ashlar::testing {
namespace {

/// A run of the model on a mesh of all ranks, which continues the newest checkpoint if there is one.
class ExpertRun {
 public:
  ExpertRun(const mesh::MeshShape& shape, const model::ModelConfig& config, const SharedDir& dir)
      : dir_(dir), run_(shape, config, DType::kFloat64, {}) {
    training::Engine& engine = run_.engine;
    Log log([](std::string_view) {});
    const auto found = checkpoint::newest_good(dir.path(), log, run_.mesh.control());
    if (!found) {
      engine.initialize();
      return;
    }
    checkpoint::CheckpointReader reader = checkpoint::open_checkpoint(found->path, run_.mesh.control());
    step_ =
        checkpoint::load_training(
            engine.ctx(),
            {.ranks = run_.mesh.control(), .reader = reader, .store = engine.store(), .optimizer = engine.optimizer()})
            .step;
    engine.start_param_sync();
  }
  std::vector<double> train(int64_t steps) {
    step_ += steps;
    return testing::train(run_.engine, step_ - steps, step_);
  }
  void save() {
    checkpoint::save(run_.engine.ctx(), {.ranks = run_.mesh.control(),
                                         .run_dir = dir_.path(),
                                         .store = run_.engine.store(),
                                         .optimizer = run_.engine.optimizer(),
                                         .state = {.step = step_}});
    comm::barrier(run_.mesh.control());
  }

 private:
  const SharedDir& dir_;
  OnMesh run_;
  int64_t step_ = 0;
};

void expect_near(const std::vector<double>& got, double expected, const char* where) {
  ASSERT_EQ(got.size(), 1U);
  EXPECT_NEAR(got[0], expected, 1e-11 * expected) << where;
}

TEST(ExpertResume, GoesOnWithExpertsOverOtherRanks) {
  comm::ControlPlane& world = bootstrap().control();
  const int64_t ranks = world.size();
  if (ranks == 1 || ranks == 8) return;
  const mesh::MeshShape whole{{Axis::kReplica, ranks}}, divided{{Axis::kReplica, ranks / 2}, {Axis::kExpert, 2}};
  model::ModelConfig config = config_of({.n_kv_heads = 2, .biases = true});
  config.moe = {.experts = 5, .top_k = 2, .d_ff = 8, .shared_d_ff = 8};
  if (ranks == 4) config.moe.tensor = model::ExpertCut::kExperts;
  const SharedDir dir(world);
  std::vector<double> stayed, divided_later;
  {
    ExpertRun run(whole, config, dir);
    run.train(1);
    run.save();
    stayed = run.train(2);
  }
  {
    ExpertRun run(divided, config, dir);
    expect_near(run.train(1), stayed.front(), "expert 2");
    run.save();
    divided_later = run.train(1);
  }
  EXPECT_EQ(ExpertRun(divided, config, dir).train(1), divided_later) << "on the same mesh";
  expect_near(ExpertRun(whole, config, dir).train(1), stayed.back(), "back on expert 1");
  const mesh::MeshShape tensor{{Axis::kExpert, ranks / 2}, {Axis::kTensor, 2}};
  expect_near(ExpertRun(tensor, config, dir).train(1), stayed.back(), "on tensor 2");
}

}  // namespace
}  // namespace ashlar::testing
