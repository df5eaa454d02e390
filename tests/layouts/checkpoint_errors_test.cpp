// Checkpoints of many ranks when something goes wrong on one of them: one error for all, and nothing lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/save.h"
#include "parallel/checkpoint/writer.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/on_mesh.h"
#include "tests/support/damage.h"
#include "tests/support/ranks/outcome.h"
#include "tests/support/ranks/shared_dir.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// No file of this process may grow beyond a size.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &previous_);
    const rlimit limited{.rlim_cur = bytes, .rlim_max = previous_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &previous_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit previous_{};
};

/// A model of two stages (when there are two ranks), replicated over the rest.
class CheckpointOfAll : public ::testing::Test {
 protected:
  CheckpointOfAll() : model_(shape(), config_of(kAxes[2]), DType::kFloat32, {}) { model_.fill(element); }

  static mesh::MeshShape shape() {
    const int64_t ranks = bootstrap().world().size();
    const int64_t stages = ranks % 2 == 0 ? 2 : 1;
    return {{Axis::kPipeline, stages}, {Axis::kReplica, ranks / stages}};
  }
  checkpoint::Saved save(int64_t step, int64_t keep = 0) { return save_in(run_, step, keep); }
  checkpoint::Saved save_in(const fs::path& run, int64_t step, int64_t keep = 0) {
    return checkpoint::save(model_.engine.ctx(), {.ranks = world_,
                                                  .run_dir = run,
                                                  .store = model_.engine.store(),
                                                  .optimizer = model_.engine.optimizer(),
                                                  .state = {.step = step},
                                                  .keep = keep});
  }
  static void load(OnMesh& into, const fs::path& from) {
    checkpoint::CheckpointReader reader = checkpoint::open_checkpoint(from, into.mesh.control());
    checkpoint::load_training(into.engine.ctx(), {.ranks = into.mesh.control(),
                                                  .reader = reader,
                                                  .store = into.engine.store(),
                                                  .optimizer = into.engine.optimizer()});
    into.engine.start_param_sync();
    into.engine.wait_param_sync();
  }
  /// What is in the folder of checkpoints, once all ranks have come here.
  std::vector<std::string> folder() {
    comm::barrier(world_);
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(checkpoints())) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    comm::barrier(world_);
    return names;
  }
  fs::path checkpoints() const { return checkpoint::checkpoints_dir(run_); }
  /// By rank 0, before anybody continues.
  void by_one(const std::function<void()>& action) {
    if (world_.rank() == 0) action();
    comm::barrier(world_);
  }
  std::string prefix(int rank) const {
    if (ranks_ == 1) return "[";
    return str_cat("rank ", rank, " of ", ranks_, " on ", comm::Bootstrap::host_name(), ": ");
  }

  comm::ControlPlane& world_ = bootstrap().control();
  const int ranks_ = world_.size();
  SharedDir dir_{world_};
  const fs::path run_ = dir_.path() / "run";
  OnMesh model_;
  Log log_{[](std::string_view) {}};
};

TEST_F(CheckpointOfAll, ARankThatCannotWriteFailsAllAndLosesNothing) {
  const auto step_1 = checkpoint::directory_name(1);
  save(1);
  for (const int who : {0, ranks_ - 1}) {
    // Not even the header fits; a part of the weights does.
    for (const rlim_t bytes : {10, 6000}) {
      const Outcome outcome = outcome_of(world_, [&] {
        std::optional<FileSizeLimit> limit;
        if (world_.rank() == who) limit.emplace(bytes);
        save(2);
      });
      EXPECT_EQ(outcome.code, ExitCode::kResource);
      EXPECT_THAT(outcome.text, AllOf(HasSubstr(prefix(who)), HasSubstr("step-00000002"), HasSubstr("ulimit -f")));
      EXPECT_THAT(folder(), ElementsAre(step_1));
    }
  }
  const auto found = checkpoint::newest_good(run_, log_, world_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 1);
  EXPECT_THAT(log_.warnings(), IsEmpty());
  model_.fill([](uint64_t, int64_t, int64_t) { return -77.0; });
  load(model_, found->path);
  model_.expect(element);
}

TEST_F(CheckpointOfAll, ARunDirectoryThatARankDoesNotSeeIsNamed) {
  if (ranks_ == 1) return;
  const fs::path elsewhere = dir_.path() / "elsewhere";
  const Outcome outcome = outcome_of(world_, [&] { save_in(world_.rank() == ranks_ - 1 ? elsewhere : run_, 1); });
  EXPECT_EQ(outcome.code, ExitCode::kInput);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr(prefix(ranks_ - 1)), HasSubstr("elsewhere/checkpoints/step-00000001"),
                                  HasSubstr("run.dir must be on a file system that all nodes share")));
  EXPECT_THAT(folder(), IsEmpty());
}

TEST_F(CheckpointOfAll, AllRanksReturnTheSame) {
  save(1);
  const checkpoint::Saved saved = save(2, 1);
  EXPECT_THAT(saved.removed, ElementsAre(checkpoints() / "step-00000001"));
  for (const double seconds : comm::gather_values(world_, saved.seconds)) EXPECT_EQ(seconds, saved.seconds);
  int64_t bytes = 0, files = 0;
  for (const auto& entry : fs::directory_iterator(saved.path)) {
    bytes += static_cast<int64_t>(entry.file_size());
    ++files;
  }
  EXPECT_EQ(saved.bytes, bytes);
  EXPECT_EQ(files, 2 * ranks_ + 1);
  EXPECT_THAT(folder(), ElementsAre("step-00000002"));
}

TEST_F(CheckpointOfAll, RanksThatOwnNothingWriteNoFile) {
  nn::ParameterStore store;
  store.add("x.storage", Shape{50}, {{.name = "x", .global_shape = Shape{50}, .rows = 1, .cols = 50}});
  const Ctx& ctx = model_.engine.ctx();
  store.allocate(ctx, true);
  const mesh::MeshShape replicas{{Axis::kReplica, ranks_}};
  const zero::ShardPlan plan = zero::make_plan(store, {.mesh = replicas, .shard_unit = optim::ShardUnit::kTensor});
  const auto optimizer =
      optim::make_optimizer(ctx, store, {}, plan.owned_by(replicas, {{Axis::kReplica, world_.rank()}}));
  const auto saved = checkpoint::save(
      ctx, {.ranks = world_, .run_dir = run_, .store = store, .optimizer = optimizer.get(), .state = {.step = 1}});
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(saved.path)) files.push_back(entry.path().filename());
  // The only tensor, uncut, is the last replica's.
  const std::string place = absl::StrFormat("-%05d.safetensors", ranks_ - 1);
  EXPECT_THAT(files, ::testing::UnorderedElementsAre("weights" + place, "optimizer" + place, "manifest.json"));
  checkpoint::CheckpointReader reader = checkpoint::open_checkpoint(saved.path, world_);
  EXPECT_EQ(outcome_of(world_,
                       [&] {
                         checkpoint::load_training(
                             ctx, {.ranks = world_, .reader = reader, .store = store, .optimizer = optimizer.get()});
                       })
                .text,
            "");
}

TEST_F(CheckpointOfAll, AnotherModelIsOneErrorThatKnowsAllStages) {
  const fs::path saved = save(1).path;
  model::ModelConfig config = config_of(kAxes[2]);
  config.n_layers = 3;
  config.d_ff = 48;
  OnMesh other(shape(), config, DType::kFloat32, {});
  const auto before = [](uint64_t, int64_t, int64_t) { return -77.0; };
  other.fill(before);
  const Outcome outcome = outcome_of(world_, [&] { load(other, saved); });
  EXPECT_EQ(outcome.code, ExitCode::kInput);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("is a checkpoint of another model: other shape: 'blocks.0."),
                                  HasSubstr("'blocks.1.ffn.up.weight' is [40, 24] instead of [48, 24]"),
                                  HasSubstr("; missing in the checkpoint: 'blocks.2.")));
  EXPECT_THAT(outcome.text, Not(HasSubstr("not in this model")));
  EXPECT_THAT(outcome.text, Not(HasSubstr("rank ")));
  other.expect(before);
}

TEST_F(CheckpointOfAll, DamageThatOneRankFindsIsEverybodys) {
  const fs::path saved = save(1).path;
  const std::string file = checkpoint::file_name(checkpoint::Group::kOptimizer, ranks_ - 1);
  by_one([&] { flip_middle_bit(saved / file, 2); });
  // On the same mesh each rank reads what it has written.
  const Outcome outcome = outcome_of(world_, [&] { load(model_, saved); });
  EXPECT_EQ(outcome.code, ExitCode::kDamagedData);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr(prefix(ranks_ - 1)), HasSubstr(file)));
}

TEST_F(CheckpointOfAll, OneRankLooksForAll) {
  EXPECT_FALSE(checkpoint::newest_good(run_, log_, world_).has_value());
  save(1);
  const fs::path newest = save(2).path;
  by_one([&] { fs::create_directories(checkpoints() / "step-00000003.partial"); });
  EXPECT_THAT(checkpoint::remove_leftovers(run_, log_, world_), ElementsAre(checkpoints() / "step-00000003.partial"));
  EXPECT_EQ(checkpoint::resolve(run_, log_, world_), newest);
  EXPECT_THAT(log_.warnings(), IsEmpty());

  by_one([&] { flip_middle_bit(newest / "weights-00000.safetensors", 2); });
  const auto found = checkpoint::newest_good(run_, log_, world_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 1);
  EXPECT_EQ(found->path, checkpoints() / "step-00000001");
  EXPECT_EQ(log_.warnings().size(), world_.rank() == 0 ? 1U : 0U);

  by_one([&] { flip_middle_bit(found->path / "weights-00000.safetensors", 2); });
  EXPECT_EQ(outcome_of(world_, [&] { checkpoint::newest_good(run_, log_, world_); }).code, ExitCode::kDamagedData);
  const Outcome nothing = outcome_of(world_, [&] { checkpoint::resolve(dir_.path() / "absent", log_, world_); });
  EXPECT_EQ(nothing.code, ExitCode::kInput);
  EXPECT_THAT(nothing.text, HasSubstr("absent"));
  const Outcome closed = outcome_of(world_, [&] { checkpoint::open_checkpoint(dir_.path() / "absent", world_); });
  EXPECT_EQ(closed.code, ExitCode::kInput);
}

}  // namespace
}  // namespace ashlar::testing
