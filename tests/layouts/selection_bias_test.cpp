// Biases and counts of experts on every mesh: saved, resumed, skipped. one_rank compares their steps with one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

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

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSavedStep = 3, kTrainedSteps = 7;

/// Biases that move fast, and a balance from counts of the step before.
model::ModelConfig biased() {
  const auto* const axes = std::ranges::find(kAxes, std::string_view("ExpertsBySelectionBias"),
                                             [](const Axes& a) { return std::string_view(a.name); });
  model::ModelConfig config = config_of(*axes);
  config.n_layers = 4;
  return config;
}

std::map<std::string, std::vector<double>> buffers_of(OnMesh& on) {
  std::map<std::string, std::vector<double>> all;
  for (const auto& buffer : on.engine.store().buffers())
    all[buffer->tensor.name] = host_values(on.engine.ctx(), buffer->values);
  return all;
}

void save(OnMesh& on, const std::filesystem::path& dir) {
  checkpoint::save(on.engine.ctx(), {.ranks = on.mesh.control(),
                                     .run_dir = dir,
                                     .store = on.engine.store(),
                                     .optimizer = on.engine.optimizer(),
                                     .state = {.step = kSavedStep}});
}

void load(OnMesh& on, const std::filesystem::path& dir, const std::vector<std::string>& optional = {}) {
  Log log([](std::string_view) {});
  const auto found = checkpoint::newest_good(dir, log, on.mesh.control());
  ASSERT_TRUE(found.has_value());
  checkpoint::CheckpointReader reader = checkpoint::open_checkpoint(found->path, on.mesh.control());
  checkpoint::load_training(on.engine.ctx(), {.ranks = on.mesh.control(),
                                              .reader = reader,
                                              .store = on.engine.store(),
                                              .optimizer = on.engine.optimizer(),
                                              .optional_buffers = optional});
  on.engine.start_param_sync();
}

/// The meshes of all ranks whose stages have a layer each.
std::vector<mesh::MeshShape> possible_meshes() {
  std::vector<mesh::MeshShape> all = meshes_of(bootstrap().world().size());
  std::erase_if(all, [](const mesh::MeshShape& shape) { return shape[Axis::kPipeline] > biased().n_layers; });
  return all;
}

TEST(SelectionBias, ContinuesOnItsMeshAndOnAnother) {
  if (bootstrap().world().size() > 4 && !long_form()) GTEST_SKIP() << "four ranks and fewer, and the long form";
  const SharedDir dir(bootstrap().control());
  const std::vector<mesh::MeshShape> shapes = possible_meshes();
  for (const mesh::MeshShape& from : {shapes.front(), shapes.back()}) {
    OnMesh a(from, biased(), DType::kFloat64, {});
    a.engine.initialize();
    train(a.engine, 0, kSavedStep);
    const std::filesystem::path saved = dir.path() / name_of(from);
    save(a, saved);
    const std::vector<double> stayed = train(a.engine, kSavedStep, kTrainedSteps);
    const auto buffers = buffers_of(a);
    for (const mesh::MeshShape& to : long_form() ? shapes : std::vector{shapes.front(), shapes.back()}) {
      SCOPED_TRACE(str_cat("from ", name_of(from), " to ", name_of(to)));
      OnMesh b(to, biased(), DType::kFloat64, {});
      load(b, saved);
      const std::vector<double> moved = train(b.engine, kSavedStep, kTrainedSteps);
      for (size_t i = 0; i < moved.size(); ++i)
        EXPECT_NEAR(moved[i], stayed[i], to == from ? 0 : 1e-9 * stayed[i]) << i << " steps later";
      for (const auto& [name, values] : buffers_of(b)) {
        if (const auto same = buffers.find(name); same != buffers.end()) {
          EXPECT_EQ(values, same->second) << name;
        }
        EXPECT_TRUE(std::ranges::any_of(values, [](double x) { return x != 0; })) << name << " never moved";
      }
    }
  }
}

TEST(SelectionBias, ANonFiniteStepMovesNothing) {
  for (const mesh::MeshShape& shape : possible_meshes()) {
    OnMesh on(shape, biased(), DType::kFloat32, {});
    on.engine.initialize();
    train(on.engine, 0, 2);
    const auto before = buffers_of(on);
    for (const nn::ShardedRange& range : on.engine.optimizer()->ranges()) {
      if (range.ref->tensor->name != "head.weight") continue;
      upload(on.engine.ctx(), std::vector<double>(static_cast<size_t>(range.size), std::nan("")),
             on.engine.optimizer()->master().of(range));
    }
    on.engine.optimizer()->copy_master_to_params(on.engine.ctx());
    on.engine.start_param_sync();
    train(on.engine, 2, 3);
    EXPECT_EQ(buffers_of(on), before) << name_of(shape);
  }
}

/// Buffers of a checkpoint that was tried before do not stay.
TEST(SelectionBias, WhatOnlyTheModelOrTheCheckpointHasMayBeOptional) {
  const SharedDir dir(bootstrap().control());
  model::ModelConfig plain = biased();
  plain.moe.selection_bias = false;
  plain.moe.balance = model::Balance::kNone;
  const mesh::MeshShape shape = possible_meshes().front();
  OnMesh a(shape, plain, DType::kFloat32, {}), b(shape, biased(), DType::kFloat32, {});
  for (OnMesh* on : {&a, &b}) {
    on->engine.initialize();
    train(on->engine, 0, 1);
  }
  save(a, dir.path() / "plain");
  save(b, dir.path() / "biased");
  const std::vector<std::string> all = {"router.selection_bias", "router.previous_counts"};
  EXPECT_THROW(load(b, dir.path() / "plain", {all[0]}), Error);
  EXPECT_THROW(load(b, dir.path() / "plain", {all[1]}), Error);
  load(b, dir.path() / "plain", all);
  for (const auto& [name, values] : buffers_of(b)) EXPECT_EQ(values, std::vector<double>(values.size())) << name;
  EXPECT_THROW(load(a, dir.path() / "biased", {all[0]}), Error);
  EXPECT_THROW(load(a, dir.path() / "biased", {all[1]}), Error);
  load(a, dir.path() / "biased", all);
}

/// Expects that the biased model does not load a checkpoint of `plain`.
void expect_not_loaded(const model::ModelConfig& plain, ExitCode code, const ::testing::Matcher<const char*>& text) {
  const SharedDir dir(bootstrap().control());
  const mesh::MeshShape shape = possible_meshes().front();
  OnMesh a(shape, plain, DType::kFloat32, {});
  a.engine.initialize();
  save(a, dir.path());
  OnMesh b(shape, biased(), DType::kFloat32, {});
  try {
    load(b, dir.path());
    ADD_FAILURE() << "was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_THAT(error.what(), text);
  }
}

TEST(SelectionBias, ACheckpointWithoutItIsOfAnotherModel) {
  model::ModelConfig plain = biased();
  plain.moe.selection_bias = false;
  expect_not_loaded(plain, ExitCode::kInput,
                    AllOf(HasSubstr("missing in the checkpoint: 'blocks.0.moe.router.selection_bias' [8], "),
                          HasSubstr("use the configuration that the checkpoint was trained with")));
}

TEST(SelectionBias, ACheckpointWithoutCountsCannotBeResumed) {
  model::ModelConfig plain = biased();
  plain.moe.balance = model::Balance::kNone;
  expect_not_loaded(plain, ExitCode::kDamagedData,
                    HasSubstr("no optimizer state tensor 'blocks.0.moe.router.previous_counts' of shape [8]"));
}

}  // namespace
}  // namespace ashlar::testing
