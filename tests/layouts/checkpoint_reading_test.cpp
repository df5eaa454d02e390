// What many ranks read of a checkpoint, and how they agree on which one is good.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/save.h"
#include "parallel/checkpoint/writer.h"
#include "parallel/zero/shard_plan.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/on_mesh.h"
#include "tests/support/damage.h"
#include "tests/support/ranks/outcome.h"
#include "tests/support/ranks/shared_dir.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// Bytes that this process has read so far, from anywhere.
int64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  for (std::string key; io >> key;) {
    int64_t value = 0;
    io >> value;
    if (key == "rchar:") return value;
  }
  return -1;
}

/// Twelve megabytes of weights and 24 of moments, divided over all ranks.
class ReadingByAll : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 3000, kCols = 1000;
  ReadingByAll() : mesh_(shape(), config_of(kAxes[0]), DType::kFloat32, {}), ctx_(mesh_.engine.ctx()) {
    store_.add("x.storage", {kRows, kCols},
               {{.name = "x", .global_shape = {kRows, kCols}, .rows = kRows, .cols = kCols}});
    store_.allocate(ctx_, true);
    plan_.emplace(zero::make_plan(store_, {.mesh = shape()}));
    optimizer_ =
        optim::make_optimizer(ctx_, store_, {}, plan_->owned_by(shape(), mesh::coordinates_of(shape(), world_.rank())));
    optimizer_->initialize(ctx_, 1);
  }
  static mesh::MeshShape shape() { return {{Axis::kReplica, bootstrap().world().size()}}; }
  checkpoint::Saved save(int64_t step) {
    return checkpoint::save(
        ctx_,
        {.ranks = world_, .run_dir = run_, .store = store_, .optimizer = optimizer_.get(), .state = {.step = step}});
  }
  void load(const fs::path& path) {
    checkpoint::CheckpointReader reader = checkpoint::open_checkpoint(path, world_);
    checkpoint::load_training(ctx_,
                              {.ranks = world_, .reader = reader, .store = store_, .optimizer = optimizer_.get()});
  }
  std::string master() {
    const Tensor all = optimizer_->master().data;
    std::string bytes(static_cast<size_t>(all.size() * size_of(all.dtype())), '\0');
    ctx_.backend.read(all.view(), bytes.data(), ctx_.stream);
    return bytes;
  }

  comm::ControlPlane& world_ = bootstrap().control();
  SharedDir dir_{world_};
  const fs::path run_ = dir_.path() / "run";
  OnMesh mesh_;
  const Ctx ctx_;
  nn::ParameterStore store_;
  std::optional<zero::ShardPlan> plan_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Log log_{[](std::string_view) {}};
};

TEST_F(ReadingByAll, EachRankReadsItsShareTwiceAndNotTheWhole) {
  const checkpoint::Saved saved = save(1);
  const std::string before = master();
  comm::barrier(world_);
  const int64_t start = bytes_read();
  const auto found = checkpoint::newest_good(run_, log_, world_);
  ASSERT_TRUE(found.has_value());
  load(found->path);
  const int64_t read = bytes_read() - start;
  EXPECT_EQ(master(), before);
  // Its share to verify and its share to load, a chunk that it shares at either end of each file, headers, the
  // manifest.
  EXPECT_LE(read, 2 * saved.bytes / world_.size() + (int64_t{12} << 20)) << "of " << saved.bytes;
  EXPECT_GE(read, 2 * saved.bytes / world_.size() - (int64_t{2} << 20)) << "nothing is left out";
}

TEST_F(ReadingByAll, ADamagedByteInAnyShareIsEverybodysVerdict) {
  const fs::path older = save(1).path, newer = save(2).path;
  const std::string before = master();
  for (int owner = 0; owner < world_.size(); ++owner) {
    const fs::path file = newer / checkpoint::file_name(checkpoint::Group::kOptimizer, owner);
    const auto flip = [&] {
      if (world_.rank() == 0) flip_middle_bit(file);
      comm::barrier(world_);
    };
    flip();
    Log log([](std::string_view) {});
    const auto found = checkpoint::newest_good(run_, log, world_);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->path, older) << "on rank " << world_.rank();
    if (world_.rank() == 0) {
      ASSERT_EQ(log.warnings().size(), 1U);
      EXPECT_THAT(log.warnings()[0], HasSubstr(file.filename().string()));
    }
    EXPECT_EQ(master(), before) << "nothing was loaded";
    flip();
  }
  EXPECT_EQ(checkpoint::newest_good(run_, log_, world_)->path, newer);
}

TEST_F(ReadingByAll, WeightsOfTheNewestAreLoadedAndTheRestVerifiedInOneReading) {
  const fs::path older = save(1).path, newer = save(2).path;
  const std::string before = master();
  const auto load_newest = [&](Log& log) {
    return checkpoint::load_resolved(
        {.path = run_, .log = log, .ranks = world_, .load = [&](checkpoint::CheckpointReader& reader) {
           checkpoint::load_weights(
               ctx_, {.ranks = world_, .reader = reader, .store = store_, .optimizer = optimizer_.get()});
         }});
  };
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(newer)) bytes += static_cast<int64_t>(entry.file_size());
  comm::barrier(world_);
  const int64_t start = bytes_read();
  EXPECT_EQ(load_newest(log_), newer);
  const int64_t read = bytes_read() - start;
  EXPECT_LE(read, bytes / world_.size() + (int64_t{8} << 20)) << "of " << bytes;
  EXPECT_GE(read, bytes / world_.size() - (int64_t{2} << 20)) << "nothing is left out";
  EXPECT_EQ(master(), before);
  for (const auto group : {checkpoint::Group::kWeights, checkpoint::Group::kOptimizer}) {
    for (int owner = 0; owner < world_.size(); ++owner) {
      const std::string file = checkpoint::file_name(group, owner);
      if (world_.rank() == 0) flip_middle_bit(newer / file);
      comm::barrier(world_);
      Log log([](std::string_view) {});
      EXPECT_EQ(load_newest(log), older) << "on rank " << world_.rank();
      if (world_.rank() == 0) {
        ASSERT_EQ(log.warnings().size(), 1U);
        EXPECT_THAT(log.warnings()[0], HasSubstr(file));
      }
      if (world_.rank() == 0) flip_middle_bit(newer / file);
      comm::barrier(world_);
    }
  }
}

TEST_F(ReadingByAll, OneRankReadsTheManifest) {
  const fs::path saved = save(1).path;
  const fs::path empty = dir_.path() / "empty";
  if (world_.rank() == 0) fs::create_directories(empty);
  comm::barrier(world_);
  const checkpoint::CheckpointReader reader = checkpoint::open_checkpoint(world_.rank() == 0 ? saved : empty, world_);
  EXPECT_EQ(reader.tensors().size(), 3U);
  if (world_.size() == 1) return;
  const Outcome unseen = outcome_of(
      world_, [&] { checkpoint::open_checkpoint(world_.rank() == 0 ? saved : dir_.path() / "absent", world_); });
  EXPECT_EQ(unseen.code, ExitCode::kInput);
  EXPECT_THAT(unseen.text, HasSubstr("on a file system that all nodes share"));
}

}  // namespace
}  // namespace ashlar::testing
