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

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, const char* where) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-9 * expected[i]) << where << ", " << i;
}

TEST(ExpertResume, GoesOnWithExpertsOverOtherRanks) {
  comm::ControlPlane& world = bootstrap().control();
  const int64_t ranks = world.size();
  if (ranks == 1 || ranks == 8) return;
  const mesh::MeshShape whole{{Axis::kReplica, ranks}}, divided{{Axis::kReplica, ranks / 2}, {Axis::kExpert, 2}};
  for (const model::ExpertCut cut : {model::ExpertCut::kSlices, model::ExpertCut::kExperts}) {
    model::ModelConfig config = config_of({.n_kv_heads = 2, .biases = true});
    config.moe = {.experts = 5, .top_k = 2, .d_ff = 8, .shared_d_ff = 8, .tensor = cut};
    const SharedDir dir(world);
    std::vector<double> stayed;
    {
      ExpertRun run(whole, config, dir);
      run.train(2);
      run.save();
      stayed = run.train(4);
    }
    std::vector<double> first_of_divided;
    {
      ExpertRun run(divided, config, dir);
      const std::vector<double> moved = run.train(2);
      run.save();
      first_of_divided = run.train(2);
      expect_near(moved, {stayed.begin(), stayed.begin() + 2}, "expert 2");
    }
    EXPECT_EQ(ExpertRun(divided, config, dir).train(2), first_of_divided) << "on the same mesh";
    expect_near(ExpertRun(whole, config, dir).train(2), {stayed.begin() + 2, stayed.end()}, "back on expert 1");
    const mesh::MeshShape tensor{{Axis::kExpert, ranks / 2}, {Axis::kTensor, 2}};
    expect_near(ExpertRun(tensor, config, dir).train(2), {stayed.begin() + 2, stayed.end()}, "on tensor 2");
  }
}

}  // namespace
}  // namespace ashlar::testing
