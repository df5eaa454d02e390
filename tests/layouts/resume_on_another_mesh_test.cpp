// A run that moves to another mesh continues as the one that stays: the next loss, and the twenty after it.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/save.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/meshes.h"
#include "tests/layouts/on_mesh.h"
#include "tests/layouts/train_steps.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/shared_dir.h"

namespace ashlar::testing {
namespace {

constexpr int64_t kBefore = 3;

int64_t steps_after() { return long_form() ? 21 : 4; }

class ResumeOnAnyMesh : public ::testing::TestWithParam<int64_t> {};

// Every pair of meshes; models rotate over those that save. The long form takes three models each, 20 losses more, and
// eight ranks too.
TEST_P(ResumeOnAnyMesh, SlowGoesOnAsIfItHadStayed) {
  comm::ControlPlane& world = bootstrap().control();
  const int64_t turn = GetParam();
  const std::vector<mesh::MeshShape> shapes = meshes(world.size());
  const SharedDir dir(world);
  std::vector<std::vector<double>> stayed(shapes.size());
  const auto model = [&](size_t from) {
    model::ModelConfig config = config_of(kAxes[(from + turn) % std::size(kAxes)]);
    config.n_layers = 8;
    return config;
  };
  const auto chosen = [&](size_t from) {
    return long_form() || (world.size() <= 4 && static_cast<int64_t>(from % 3) == turn % 3);
  };
  const auto run_dir = [&](size_t from, int number) { return dir.path() / str_cat(from, "-", number); };

  for (size_t from = 0; from < shapes.size(); ++from) {
    if (!chosen(from)) continue;
    OnMesh a(shapes[from], model(from), DType::kFloat32, {});
    a.engine.initialize();
    train(a.engine, 0, kBefore);
    checkpoint::save(a.engine.ctx(), {.ranks = a.mesh.control(),
                                      .run_dir = run_dir(from, a.number),
                                      .store = a.engine.store(),
                                      .optimizer = a.engine.optimizer(),
                                      .state = {.step = kBefore}});
    stayed[from] = train(a.engine, kBefore, kBefore + steps_after());
  }
  comm::barrier(world);
  for (size_t from = 0; from < shapes.size(); ++from) {
    if (!chosen(from)) continue;
    for (size_t to = 0; to < shapes.size(); ++to) {
      SCOPED_TRACE(str_cat("from ", name_of(shapes[from]), " to ", name_of(shapes[to])));
      OnMesh b(shapes[to], model(from), DType::kFloat32, {.interleaved = true});
      const int other = b.number % static_cast<int>(world.size() / shapes[from].ranks());
      Log log([](std::string_view) {});
      const auto found = checkpoint::newest_good(run_dir(from, other), log, b.mesh.control());
      ASSERT_TRUE(found.has_value());
      checkpoint::CheckpointReader reader = checkpoint::open_checkpoint(found->path, b.mesh.control());
      checkpoint::load_training(
          b.engine.ctx(),
          {.ranks = b.mesh.control(), .reader = reader, .store = b.engine.store(), .optimizer = b.engine.optimizer()});
      b.engine.start_param_sync();
      const std::vector<double> moved = train(b.engine, kBefore, kBefore + steps_after());
      ASSERT_EQ(moved.size(), stayed[from].size());
      EXPECT_NEAR(moved[0], stayed[from][0], 1e-6 * stayed[from][0]);
      for (size_t i = 1; i < moved.size(); ++i)
        EXPECT_NEAR(moved[i], stayed[from][i], 2e-5 * stayed[from][i]) << i << " steps later";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Turns, ResumeOnAnyMesh, ::testing::Range<int64_t>(0, 3));

}  // namespace
}  // namespace ashlar::testing
