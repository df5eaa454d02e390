// The tiny twin of every published model (launch/zoo): thirty steps on one rank, on four, and on four that stopped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "data/read/batch.h"
#include "kernels/make_backend.h"
#include "launch/training/engine.h"
#include "launch/training/engine_options.h"
#include "launch/training/evaluation.h"
#include "launch/zoo/published.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/save.h"
#include "parallel/comm/host.h"
#include "tests/layouts/meshes.h"
#include "tests/support/lone_rank.h"
#include "tests/support/ranks/ranks.h"
#include "tests/support/ranks/shared_dir.h"

namespace ashlar::testing {
namespace {

constexpr int64_t kTwinSteps = 30, kSavedAt = 24, kRanks = 4, kBytesVocab = 257;
/// A test takes as many twins as there are ranks: each has the whole model of one of them to itself.
constexpr int64_t kTwinsOfATest = kRanks;

/// Real text as bytes, one that no change of the project changes: twins of four layers are trained at rates where some
/// texts make one of them diverge.
const std::vector<int32_t>& text() {
  static const std::vector<int32_t> bytes = [] {
    std::ifstream file(ASHLAR_SOURCE_DIR "/LICENSE", std::ios::binary);
    return std::vector<int32_t>{std::istreambuf_iterator<char>(file), {}};
  }();
  return bytes;
}

/// Rows [first, first + B) of all samples, the same for their numbers on any mesh.
data::Batch samples(int64_t first, int64_t B, int64_t T) {
  data::Batch batch;
  data::resize_batch(batch, B, T, {});
  for (int64_t b = 0; b < B; ++b) {
    const auto begin = static_cast<int64_t>(Philox::block(5, first + b, 0)[0]) % (std::ssize(text()) - T - 1);
    data::fill_row(batch, b, std::span(text()).subspan(begin, T + 1), -1, {});
  }
  batch.first_sample = first;
  std::vector<int32_t> counts;
  data::fill_order(batch, kBytesVocab, counts);
  return batch;
}

struct StepNumbers {
  double loss = 0, grad_norm = 0;
};

/// A twin on ranks that hold it together.
class TwinRun {
 public:
  TwinRun(const zoo::PublishedText& model, comm::Communicator& ranks, const mesh::MeshShape& shape, bool sequence)
      : config_(resolve(model, shape, sequence)),
        mesh_(ranks, shape),
        engine_(*backend_, *stream_, mesh_, training::engine_options(config_)) {}

  training::Engine& engine() { return engine_; }

  std::vector<StepNumbers> train(int64_t from, int64_t to) {
    const int64_t B = config_.train.micro_batch, share = config_.train.global_batch / B / mesh_.size(kSampleAxes);
    std::vector<training::DeviceBatch> slots(static_cast<size_t>(share));
    std::vector<StepNumbers> steps;
    for (int64_t step = from; step < to; ++step) {
      for (int64_t m = 0; m < share; ++m) {
        const int64_t first = step * config_.train.global_batch + (mesh_.index(kSampleAxes) * share + m) * B;
        slots[static_cast<size_t>(m)].upload(engine_.ctx(), samples(first, B, config_.train.sequence_length));
      }
      const training::StepResult result = engine_.forward_backward(training::micro_batches(slots), step);
      const double warm = static_cast<double>(step + 1) / static_cast<double>(config_.schedule.warmup_steps);
      engine_.update(step, config_.optimizer.lr * std::min(1.0, warm));
      steps.push_back({result.loss, result.grad_norm});
    }
    return steps;
  }

 private:
  static config::RunConfig resolve(const zoo::PublishedText& model, const mesh::MeshShape& shape, bool sequence) {
    const config::Facts facts{.dataset_vocab_size = kBytesVocab, .ranks = shape.ranks(), .local_ranks = shape.ranks()};
    const auto parse = [&](const std::vector<std::string>& words) {
      return config::parse_config(std::string(model.toml), std::string(model.id), words);
    };
    const config::Facts published{.dataset_vocab_size = std::nullopt, .purpose = config::Purpose::kModel};
    std::vector<std::string> words = zoo::tiny_twin(config::resolve(parse({}), published).config);
    for (std::string& word :
         std::vector{std::string("run.dtype=fp64"), std::string("data.path=none"),
                     str_cat("train.micro_batch=", shape[Axis::kReplica] == kRanks ? 2 : 4),
                     str_cat("mesh.tensor=", shape[Axis::kTensor]), str_cat("mesh.pipeline=", shape[Axis::kPipeline]),
                     str_cat("mesh.data=", shape[Axis::kReplica]),
                     str_cat("mesh.sequence_parallel=", sequence ? "true" : "false")})
      words.push_back(std::move(word));
    return config::resolve(parse(words), facts).config;
  }

  const config::RunConfig config_;
  mesh::Mesh mesh_;
  const std::unique_ptr<Backend> backend_ = kernels::make_backend({.threads = 1});
  const std::unique_ptr<Stream> stream_ = backend_->make_stream();
  training::Engine engine_;
};

class Twins : public ::testing::TestWithParam<int64_t> {};

TEST_P(Twins, SlowTrainOnFourRanksAsOnOneAndResume) {
  comm::Communicator& world = bootstrap().world();
  comm::ControlPlane& control = bootstrap().control();
  if (world.size() != kRanks) GTEST_SKIP() << "on four ranks";
  const std::span<const zoo::PublishedText> all = zoo::published_texts();
  const int64_t first = GetParam() * kTwinsOfATest, end = std::min(first + kTwinsOfATest, std::ssize(all));

  std::vector<StepNumbers> mine(kTwinSteps);
  if (const int64_t twin = first + world.rank(); twin < end) {
    mesh::LoneRank alone;
    TwinRun whole(all[static_cast<size_t>(twin)], alone.world, {}, false);
    whole.engine().initialize();
    mine = whole.train(0, kTwinSteps);
    EXPECT_LT(mine.back().loss, 0.9 * mine.front().loss) << all[static_cast<size_t>(twin)].id;
  }
  std::vector<mesh::MeshShape> shapes = meshes(kRanks);
  std::erase_if(shapes, [](const mesh::MeshShape& shape) { return shape.ranks() != kRanks; });
  const SharedDir dir(control);
  for (int64_t twin = first; twin < end; ++twin) {
    const zoo::PublishedText& model = all[static_cast<size_t>(twin)];
    const mesh::MeshShape shape = shapes[static_cast<size_t>(twin) % shapes.size()];
    const bool sequence = shape[Axis::kTensor] > 1 && twin % 2 == 0;
    SCOPED_TRACE(str_cat(model.id, " on ", name_of(shape), sequence ? " with sequence parallel" : ""));
    std::vector<StepNumbers> one_rank = mine;
    comm::broadcast_bytes(control, std::as_writable_bytes(std::span(one_rank)), static_cast<int>(twin - first));

    std::vector<StepNumbers> four;
    const std::filesystem::path run_dir = dir.path() / std::string(model.id);
    {
      TwinRun run(model, world, shape, sequence);
      run.engine().initialize();
      four = run.train(0, kSavedAt);
      checkpoint::save(run.engine().ctx(), {.ranks = control,
                                            .run_dir = run_dir,
                                            .store = run.engine().store(),
                                            .optimizer = run.engine().optimizer(),
                                            .state = {.step = kSavedAt}});
      for (const StepNumbers& step : run.train(kSavedAt, kTwinSteps)) four.push_back(step);
    }
    // Rounding alone tells them apart, which training makes larger, the most where norms stand behind branches.
    EXPECT_NEAR(four[0].loss, one_rank[0].loss, 1e-13 * one_rank[0].loss);
    EXPECT_NEAR(four[0].grad_norm, one_rank[0].grad_norm, 1e-11 * one_rank[0].grad_norm);
    for (size_t i = 1; i < kTwinSteps; ++i)
      EXPECT_NEAR(four[i].loss, one_rank[i].loss, 1e-7 * one_rank[i].loss) << "step " << i;

    TwinRun resumed(model, world, shape, sequence);
    Log log([](std::string_view) {});
    const auto found = checkpoint::newest_good(run_dir, log, control);
    ASSERT_TRUE(found.has_value());
    checkpoint::CheckpointReader reader = checkpoint::open_checkpoint(found->path, control);
    checkpoint::load_training(resumed.engine().ctx(), {.ranks = control,
                                                       .reader = reader,
                                                       .store = resumed.engine().store(),
                                                       .optimizer = resumed.engine().optimizer()});
    resumed.engine().start_param_sync();
    const std::vector<StepNumbers> later = resumed.train(kSavedAt, kTwinSteps);
    for (size_t i = 0; i < kTwinSteps - kSavedAt; ++i) {
      EXPECT_EQ(later[i].loss, four[kSavedAt + i].loss) << "step " << kSavedAt + i;
      EXPECT_EQ(later[i].grad_norm, four[kSavedAt + i].grad_norm) << "step " << kSavedAt + i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Published, Twins,
                         ::testing::Range<int64_t>(0, (std::ssize(zoo::published_texts()) + kTwinsOfATest - 1) /
                                                          kTwinsOfATest));

}  // namespace
}  // namespace ashlar::testing
