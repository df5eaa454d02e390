// A run that was saved on any mesh continues on any other: weights and moments equal to the bit, whoever holds them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/save.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/meshes.h"
#include "tests/layouts/on_mesh.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/shared_dir.h"
#include "tests/support/sanitizers.h"

namespace ashlar::testing {
namespace {

class CheckpointOnAnyMesh : public ::testing::TestWithParam<ModelCase> {};

constexpr int kRanksOfFewMeshes = 4;

/// Which of a number of meshes a model is saved on, and which it is loaded on. `place`: of the model among all.
struct MeshPairs {
  size_t meshes, place;
  bool few;  ///< few enough meshes for the models to meet each pair
  bool sanitized = under_address_sanitizer() && !long_form();

  bool saved_on(size_t from) const { return (few && long_form()) || from == place % meshes; }
  bool loaded_on(size_t from, size_t to) const {
    if (sanitized) return saved_on(from) && to == (place + 1 + place / meshes) % meshes;
    return saved_on(from) && (long_form() || (to + place / meshes) % (few ? 3 : 10) == 0);
  }
};

// A model is saved on one mesh and loaded on a third of all, on eight ranks on a tenth, since meshes are many there. On
// up to four ranks the models together meet each pair of meshes. The long form takes every model with every pair, on
// eight ranks every pair with one model or two. Under the sanitizers a model is loaded on one mesh, and the models
// together on each.
TEST_P(CheckpointOnAnyMesh, GoesOnOnAnyOther) {
  const auto& [axes, dtype, turn] = GetParam();
  model::ModelConfig config = config_of(axes);
  config.n_layers = 9;  // eight stages divide it unevenly
  const bool interleaved = turn % 2 == 1;
  comm::ControlPlane& world = bootstrap().control();
  const std::vector<mesh::MeshShape> shapes = meshes(world.size());
  const MeshPairs pairs{
      .meshes = shapes.size(), .place = static_cast<size_t>(turn), .few = world.size() <= kRanksOfFewMeshes};
  const SharedDir dir(world);
  const auto run_dir = [&](size_t from, int number) { return dir.path() / str_cat(from, "-", number); };

  // 1. saved on each mesh
  const int64_t elements = OnMesh(shapes.front(), config, dtype, {}).num_elements();  // on one rank
  for (size_t from = 0; from < shapes.size(); ++from) {
    if (!pairs.saved_on(from)) continue;
    SCOPED_TRACE("saved on " + name_of(shapes[from]));
    OnMesh a(shapes[from], config, dtype, {.interleaved = interleaved});
    EXPECT_EQ(a.num_elements(), elements);
    a.fill(element);
    const checkpoint::Saved saved = checkpoint::save(a.engine.ctx(), {.ranks = a.mesh.control(),
                                                                      .run_dir = run_dir(from, a.number),
                                                                      .store = a.engine.store(),
                                                                      .optimizer = a.engine.optimizer(),
                                                                      .state = {.step = 3, .tokens = 5}});
    int64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(saved.path))
      bytes += static_cast<int64_t>(entry.file_size());
    EXPECT_EQ(saved.bytes, bytes);
  }
  comm::barrier(world);

  // 2. loaded on each other
  for (size_t to = 0; to < shapes.size(); ++to) {
    std::optional<OnMesh> b;
    for (size_t from = 0; from < shapes.size(); ++from) {
      if (!pairs.loaded_on(from, to)) continue;
      SCOPED_TRACE("saved on " + name_of(shapes[from]) + ", loaded on " + name_of(shapes[to]));
      if (!b) b.emplace(shapes[to], config, dtype, OnMeshOptions{.interleaved = !interleaved});
      b->fill([](uint64_t, int64_t, int64_t) { return -77.0; });
      const int other = b->number % static_cast<int>(world.size() / shapes[from].ranks());
      Log log([](std::string_view) {});
      const auto found = checkpoint::newest_good(run_dir(from, other), log, b->mesh.control());
      ASSERT_TRUE(found.has_value());
      checkpoint::CheckpointReader reader = checkpoint::open_checkpoint(found->path, b->mesh.control());
      const checkpoint::TrainingState state =
          checkpoint::load_training(b->engine.ctx(), {.ranks = b->mesh.control(),
                                                      .reader = reader,
                                                      .store = b->engine.store(),
                                                      .optimizer = b->engine.optimizer()});
      EXPECT_EQ(state, (checkpoint::TrainingState{.step = 3, .tokens = 5}));
      b->engine.start_param_sync();
      b->engine.wait_param_sync();
      b->expect(element);
    }
  }
}

// Models rotate over pairs of meshes; models that are saved on one mesh have different dtypes.
std::vector<ModelCase> checkpoint_cases() {
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat64};
  std::vector<ModelCase> all;
  for (const Axes& axes : kAxes) {
    const auto turn = static_cast<int64_t>(all.size());
    all.push_back({.axes = axes, .dtype = kDTypes[(turn + turn / 3) % 3], .turn = turn});
  }
  return all;
}

TEST(CheckpointMeshes, ModelsTogetherMeetEachPair) {
  for (const int ranks : {2, 4}) {
    const size_t n = meshes(ranks).size();
    for (size_t pair = 0; pair < n * n; ++pair) {
      const auto meets = [&](const ModelCase& model) {
        return MeshPairs{.meshes = n, .place = static_cast<size_t>(model.turn), .few = true, .sanitized = false}
            .loaded_on(pair / n, pair % n);
      };
      const std::vector<ModelCase> all = checkpoint_cases();
      EXPECT_TRUE(std::ranges::any_of(all, meets)) << ranks << " ranks, meshes " << pair / n << " and " << pair % n;
    }
  }
}

TEST(CheckpointMeshes, AreSavedOnAndLoadedOnUnderTheSanitizers) {
  for (const int ranks : {2, 4}) {
    const size_t n = meshes(ranks).size();
    std::set<size_t> saved, loaded;
    for (const ModelCase& model : checkpoint_cases()) {
      const MeshPairs pairs{.meshes = n, .place = static_cast<size_t>(model.turn), .few = true, .sanitized = true};
      size_t loads = 0;
      for (size_t pair = 0; pair < n * n; ++pair) {
        if (!pairs.loaded_on(pair / n, pair % n)) continue;
        saved.insert(pair / n);
        loaded.insert(pair % n);
        ++loads;
      }
      EXPECT_EQ(loads, 1U);
    }
    EXPECT_EQ(saved.size(), n);
    EXPECT_EQ(loaded.size(), n);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CheckpointOnAnyMesh, ::testing::ValuesIn(checkpoint_cases()),
                         [](const auto& at) { return str_cat(at.param.axes.name, "_", name_of(at.param.dtype)); });

}  // namespace
}  // namespace ashlar::testing
