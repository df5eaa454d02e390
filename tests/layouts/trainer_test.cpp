// The whole trainer on a backend that is really asynchronous, where it reads each step one step late, writes what it
// writes on the CPU: rows, checkpoints and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "core/tuning/tuner.h"
#include "data/build/dataset_builder.h"
#include "data/read/batch_stream.h"
#include "kernels/cuda/attention/cudnn_backend.h"
#include "kernels/make_backend.h"
#include "launch/training/trainer.h"
#include "parallel/comm/try_on_all_ranks.h"
#include "tests/cudnn/host_planner.h"
#include "tests/gpu_emulator/backend/emulated_backend.h"
#include "tests/layouts/layer_probe.h"
#include "tests/support/deferred/deferred_backend.h"
#include "tests/support/ranks/ranks.h"
#include "tests/support/ranks/shared_dir.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::PrintToString;

/// Saves, validations and statistics at steps of their own, and steps between them where nothing looks.
constexpr const char* kConfig =
    "[run]\nthreads = 1\nseed = 3\n"
    "[model]\nd_model = 16\nn_layers = 2\nn_heads = 2\nd_ff = 24\n"
    "[dropout]\nresid = 0.1\nattn = 0.1\n"
    "[train]\nsteps = 15\nsequence_length = 16\nglobal_batch = 4\nmicro_batch = 1\neval_every = 7\neval_sequences = 2\n"
    "[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_steps = 5\n"
    "[checkpoint]\nevery = 6\nkeep = 9\n[log]\nevery = 1\nstats_every = 8\n";

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A signal for this process as its SignalWatch gets it; other threads of a test may not have blocked it.
void send_stop(const watch::SignalWatch& signals) {
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    if (text_of(task.path() / "comm") != "signals\n") continue;
    syscall(SYS_tgkill, getpid(), std::stoi(task.path().filename().string()), SIGUSR1);
  }
  while (!signals.pending()) usleep(1000);
}

struct End {
  ExitCode code = ExitCode::kDone;
  std::string error;
  std::vector<std::string> lines;  ///< of rank 0
};

/// A device that has one thing to choose once it has multiplied.
class TunableBackend final : public DeferredBackend, public Tunable, public Tuner {
 public:
  TunableBackend(uint64_t seed, std::string library, int& asked, int& measured)
      : DeferredBackend(kernels::make_backend({.threads = 1}), seed),
        library_(std::move(library)),
        asked_(asked),
        measured_(measured) {}

  Tuner* tuner() override { return this; }
  TunedChoices met() const override {
    asked_ += 1;
    TunedChoices met{.device = "device", .sections = {{"gemm", {.library = library_, .choices = {}}}}};
    if (num_gemms() > 0) met.sections["gemm"].choices["product"] = "";
    return met;
  }
  TunedChoices measure(const TunedChoices& asked) override {
    TunedChoices answers = asked;
    for (auto& [question, answer] : answers.sections.at("gemm").choices) answer = "fast";
    measured_ += 1;
    return answers;
  }
  void use(const TunedChoices&) override {}

 private:
  std::string library_;
  int &asked_, &measured_;
};

class DeferredTrainer : public ::testing::Test {
 protected:
  /// A step's line has been written; `device` is null on the CPU.
  using AfterLine = std::function<void(int64_t step, const watch::SignalWatch& signals, DeferredBackend* device)>;

  DeferredTrainer() {
    if (ranks_.rank() == 0) {
      std::ofstream text(dir_.path() / "text.txt");
      const char* const kWords[] = {"stone ", "laid ", "in ", "courses ", "cut ", "so ", "true ", "that\n"};
      for (int64_t i = 0; i < 2000; ++i) text << kWords[Philox::block(11, 0, i)[0] % std::size(kWords)];
      text.close();
      data::build_dataset({.inputs = {(dir_.path() / "text.txt").string()}, .out = data(), .threads = 1});
    }
    comm::barrier(ranks_);
  }

  std::string data() const { return (dir_.path() / "data").string(); }
  fs::path run_dir() const { return dir_.path() / "run"; }
  /// Every run has one name, which is in what it saves; this gives it another.
  fs::path put_aside(const std::string& name) {
    comm::barrier(ranks_);
    if (ranks_.rank() == 0) fs::rename(run_dir(), dir_.path() / name);
    comm::barrier(ranks_);
    return dir_.path() / name;
  }

  End train(std::vector<std::string> words, std::optional<uint64_t> deferred, const AfterLine& after_line = {}) {
    words.push_back("run.dir=" + run_dir().string());
    words.push_back("data.path=" + data());
    std::vector<data::WeightedDataset> datasets;
    datasets.push_back({std::make_unique<data::TokenDataset>(data()), 1});
    const config::Resolved resolved =
        config::resolve(config::parse_config(kConfig, "test.toml", words),
                        {.dataset_vocab_size = datasets[0].dataset->tokenizer().vocab_size(),
                         .ranks = ranks_.size(),
                         .local_ranks = ranks_.size()});
    watch::SignalWatch signals;
    signals.watch({.rank = ranks_.rank(), .ranks = ranks_.size(), .host = "here"});
    const std::unique_ptr<watch::RankWatch> watch = watch::watch_ranks(ranks_, signals);
    DeferredBackend* device = nullptr;
    End end;
    Log log([&](std::string_view line) {
      if (ranks_.rank() == 0) end.lines.emplace_back(line);
      if (ranks_.rank() == 0 && after_line && line.find("  loss ") != std::string_view::npos)
        after_line(std::stoll(std::string(line.substr(5))), signals, device);
    });
    training::TrainerArgs args{.resolved = resolved,
                               .datasets = std::move(datasets),
                               .bootstrap = bootstrap(),
                               .signals = signals,
                               .memory = {},
                               .log = log,
                               .watch = *watch};
    args.change_engine = change_engine_;
    args.reserved_activations = reserved_;
    if (make_backend_) {
      args.make_backend = make_backend_;
    } else if (deferred) {
      args.make_backend = [&] {
        std::unique_ptr<DeferredBackend> made;
        if (library_.empty()) {
          made = std::make_unique<DeferredBackend>(kernels::make_backend({.threads = 1}), *deferred);
        } else {
          made = std::make_unique<TunableBackend>(*deferred, library_, asked_, measured_);
        }
        device = made.get();
        return made;
      };
    }
    try {
      training::Trainer trainer(std::move(args));
      end.code = trainer.run();
    } catch (const Error& error) {
      end.code = error.code();
      end.error = error.what();
    }
    return end;
  }

  /// The rows of a run without times and memory.
  static std::vector<std::string> rows(const fs::path& dir) {
    std::vector<std::string> all;
    std::ifstream in(dir / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      auto row = nlohmann::ordered_json::parse(line);
      for (const char* key : {"step_ms", "tokens_per_sec", "mfu", "mfu_causal", "peak_memory_bytes", "data_wait_ms",
                              "slowest_rank", "slowest_rank_ms", "time"})
        row.erase(key);
      for (const char* key : {"save_ms", "val_seconds"}) {
        if (row.contains(key)) row[key] = "some";
      }
      all.push_back(row.dump());
    }
    return all;
  }
  /// The bytes of all files of a run's checkpoints.
  static std::map<std::string, std::string> saved(const fs::path& dir) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(dir / "checkpoints")) {
      if (entry.is_regular_file()) files[fs::relative(entry.path(), dir).string()] = text_of(entry.path());
    }
    return files;
  }
  void expect_the_run_of_the_cpu(const std::vector<std::string>& words, uint64_t seed);

  comm::ControlPlane& ranks_ = bootstrap().control();
  SharedDir dir_{ranks_};
  std::string library_;  ///< what a device chooses from; empty: it has no choice
  int asked_ = 0, measured_ = 0;
  std::function<std::unique_ptr<Backend>()> make_backend_;  ///< in the place of a deferred one
  std::function<void(training::EngineOptions&)> change_engine_;
  int64_t reserved_ = 0;  ///< TrainerArgs::reserved_activations
};

void DeferredTrainer::expect_the_run_of_the_cpu(const std::vector<std::string>& words, uint64_t seed) {
  SCOPED_TRACE(str_cat(::testing::PrintToString(words), ", seed ", seed));
  End end = train(words, std::nullopt);
  EXPECT_EQ(end.code, ExitCode::kDone) << end.error;
  const fs::path cpu = put_aside(str_cat("cpu", seed));

  std::map<int64_t, std::vector<std::string>> waits;
  std::map<int64_t, int64_t> queued;  // calls so far
  end = train(words, seed, [&](int64_t step, const watch::SignalWatch& signals, DeferredBackend* device) {
    waits[step] = device->host_waits();
    device->forget_host_waits();
    queued[step] = device->num_calls();
    if (step == 9) send_stop(signals);
  });
  EXPECT_EQ(end.code, ExitCode::kSigusr1) << end.error;
  comm::barrier(ranks_);
  const std::vector<std::string> first = rows(run_dir());
  end = train(words, seed + 1);
  EXPECT_EQ(end.code, ExitCode::kDone) << end.error;
  const fs::path device = put_aside(str_cat("device", seed));

  EXPECT_EQ(rows(device), rows(cpu));
  EXPECT_LT(first.size(), rows(cpu).size());
  // Asked for behind the line of step 9, when step 10 was queued: the request is heard at the end of step 11.
  std::map<std::string, std::string> got = saved(device);
  EXPECT_EQ(std::erase_if(got, [](const auto& file) { return file.first.find("0011/") != std::string::npos; }),
            2u * static_cast<size_t>(ranks_.size()) + 1);
  const std::map<std::string, std::string> expected = saved(cpu);
  for (const auto& [name, bytes] : expected) EXPECT_TRUE(got[name] == bytes) << name;
  EXPECT_EQ(got.size(), expected.size());
  EXPECT_EQ(expected.size(), 3 * (2u * static_cast<size_t>(ranks_.size()) + 1));
  if (ranks_.size() > 1) return;
  // Steps at which nothing looks: one wait each, for the report of a step whose successor is queued already.
  for (const int64_t step : {2, 3, 4, 5})
    ASSERT_THAT(waits[step], ElementsAre(HasSubstr("copy_to_host"))) << "before the line of step " << step;
  for (const int64_t step : {2, 3, 4}) {
    const std::string& next = waits[step + 1].front();
    EXPECT_LE(std::stoll(next.substr(next.find("call ") + 5)), queued[step]) << "before the line of step " << step;
  }
}

TEST_F(DeferredTrainer, WritesWhatTheCpuWrites) {
  const int ranks = ranks_.size();
  if (ranks == 1) {
    expect_the_run_of_the_cpu({"run.dtype=bf16"}, 1);
    expect_the_run_of_the_cpu({"run.dtype=fp32"}, 3);
  } else if (ranks == 2) {
    expect_the_run_of_the_cpu({"run.dtype=fp32", "mesh.data=2"}, 5);
    expect_the_run_of_the_cpu({"run.dtype=bf16", "mesh.pipeline=2"}, 7);
  } else {
    GTEST_SKIP() << "on one and two ranks";
  }
}

// What a layer declares and adds up on the device is a field of each step's row, equal on every mesh and device.
TEST_F(DeferredTrainer, WritesTheSumsOfLayers) {
  const int ranks = ranks_.size();
  std::vector<std::string> words = {"run.dtype=fp64", "vocab.pad_to=4", "model.n_layers=4"};
  if (ranks == 2) words.push_back("mesh.data=2");
  if (ranks == 4) words.insert(words.end(), {"mesh.pipeline=2", "mesh.tensor=2"});
  if (ranks == 8) words.insert(words.end(), {"mesh.pipeline=2", "mesh.tensor=2", "mesh.data=2"});
  LayerProbe probe(/*first_stage=*/ranks < 4 || ranks_.rank() < ranks / 2);
  change_engine_ = [&](training::EngineOptions& options) {
    options.declare_sums = [&](nn::LayerMetrics& sums) { probe.declare(sums); };
    options.after_block = [&](const Ctx& ctx, int64_t layers, const Tensor& x) { probe.see(ctx, layers, x); };
  };
  End end = train(words, std::nullopt);
  ASSERT_EQ(end.code, ExitCode::kDone) << end.error;
  const fs::path cpu = put_aside("cpu");
  end = train(words, 1);
  ASSERT_EQ(end.code, ExitCode::kDone) << end.error;
  comm::barrier(ranks_);
  EXPECT_EQ(rows(run_dir()), rows(cpu));
  int64_t steps = 0;
  for (const std::string& text : rows(cpu)) {
    const auto row = nlohmann::json::parse(text);
    if (!row.contains("loss")) continue;
    ++steps;
    EXPECT_EQ(row.at("probe_blocks"), 4 * (4 + 1) * (ranks < 4 ? 1 : 2)) << text;  // micro-batches x blocks x tensor
    EXPECT_EQ(row.at("probe_deepest"), 4);
    EXPECT_EQ(row.at("probe_embedded"), 4);
    EXPECT_GT(row.at("probe_squares"), 0);
  }
  EXPECT_EQ(steps, 15);
}

/// Stops at the end of step 11.
void stop_early(int64_t step, const watch::SignalWatch& signals, DeferredBackend* /*device*/) {
  if (step == 9) send_stop(signals);
}
bool says(const End& end, const std::string& part) {
  return std::any_of(end.lines.begin(), end.lines.end(),
                     [&](const auto& line) { return line.find(part) != line.npos; });
}

// The work done once to see what can be chosen leaves no trace: rows are those of a device without a choice.
TEST_F(DeferredTrainer, ChoosesAlgorithmsOnceAndKeepsThem) {
  if (ranks_.size() > 2) GTEST_SKIP() << "on one and two ranks";
  const bool first = ranks_.rank() == 0;
  const std::vector<std::string> words = {"run.dtype=fp32", str_cat("mesh.data=", ranks_.size())};
  EXPECT_EQ(train(words, 3).code, ExitCode::kDone);
  const fs::path plain = put_aside("plain");

  library_ = "library 1";
  End end = train(words, 3, stop_early);
  EXPECT_EQ(end.code, ExitCode::kSigusr1) << end.error;
  EXPECT_EQ(measured_, first ? 1 : 0);
  EXPECT_LE(asked_, 3) << "at the start, and twice before the first step, since what is chosen may ask more";
  const std::string text = text_of(run_dir() / "choices.json");
  EXPECT_EQ(choices_from_json(text, "").sections.at("gemm").choices.at("product"), "fast");
  comm::barrier(ranks_);
  if (first) fs::remove(run_dir() / "choices.json");  // the checkpoint has them
  comm::barrier(ranks_);

  end = train(words, 4);
  EXPECT_EQ(end.code, ExitCode::kDone) << end.error;
  EXPECT_EQ(measured_, first ? 1 : 0);
  if (first) {
    EXPECT_TRUE(says(end, "1 algorithm choices from the checkpoint"));
  }
  const fs::path tuned = put_aside("tuned");
  EXPECT_EQ(rows(tuned), rows(plain));
}

TEST_F(DeferredTrainer, MeasuresAgainForAnotherLibraryAndSaysSo) {
  if (ranks_.size() > 1) GTEST_SKIP() << "on one rank";
  library_ = "library 1";
  EXPECT_EQ(train({"run.dtype=fp32"}, 3, stop_early).code, ExitCode::kSigusr1);
  library_ = "library 2";
  const End end = train({"run.dtype=fp32"}, 3);
  EXPECT_EQ(end.code, ExitCode::kDone) << end.error;
  EXPECT_EQ(measured_, 2);
  EXPECT_TRUE(says(end, "are measured again: gemm: library 2, made with library 1"));
  EXPECT_THAT(text_of(run_dir() / "choices.json"), HasSubstr("library 2"));
}

// Room for experts that get more than their share is asked for before the first step.
TEST_F(DeferredTrainer, EndsAtItsStartWithoutTheRoomItReserves) {
  reserved_ = int64_t{1} << 55;
  const End end = train({"train.steps=6", str_cat("train.global_batch=", 4 * ranks_.size())}, std::nullopt);
  EXPECT_EQ(end.code, ExitCode::kResource);
  EXPECT_THAT(end.error, HasSubstr("out of memory for activations"));
  EXPECT_THAT(end.error, HasSubstr("a lower mesh.expert_reserve asks for less"));
  EXPECT_FALSE(fs::exists(run_dir() / "metrics.jsonl"));
}

TEST_F(DeferredTrainer, NamesTheStepThatIsNotFinite) {
  if (ranks_.size() > 2) GTEST_SKIP() << "on one and two ranks";
  const std::vector<std::string> words = {"run.dtype=fp32",   "optimizer.lr=100",   "optimizer.weight_decay=10",
                                          "optimizer.clip=0", "checkpoint.every=0", "train.eval_every=0",
                                          "log.stats_every=0"};
  const End expected = train(words, std::nullopt);
  const fs::path cpu = put_aside("cpu");
  const End got = train(words, 3);
  const fs::path device = put_aside("device");
  EXPECT_EQ(expected.code, ExitCode::kNonFinite);
  EXPECT_EQ(got.code, ExitCode::kNonFinite);
  EXPECT_THAT(expected.error, HasSubstr("is not finite"));
  EXPECT_EQ(got.error, expected.error);
  EXPECT_EQ(rows(device), rows(cpu));
  EXPECT_FALSE(rows(cpu).empty());
}

/// The emulated device with plans of the host in the place of cuDNN's.
class CudnnTrainer : public DeferredTrainer {
 protected:
  CudnnTrainer() {
    make_backend_ = [this]() -> std::unique_ptr<Backend> {
      return std::make_unique<emulated::Announcing<emulated::CudnnBackend>>(
          emulated::DeviceOptions{}, emulated::CudnnOptions{.wanted = wanted_,
                                                            .make_planner =
                                                                [this] {
                                                                  auto planner = std::make_unique<HostPlanner>(
                                                                      Planted::kNothing, queue,
                                                                      cudnn::Library{version_, 90});
                                                                  planner->count_runs_in(plan_runs_);
                                                                  return planner;
                                                                },
                                                            .free_bytes = [this] { return free_bytes_; }});
    };
  }
  static void queue(Stream& stream, std::function<void()> run) {
    emulated::internal::queue_arithmetic(stream, "attention of cuDNN", std::move(run));
  }
  End train_to(int64_t steps) {
    plan_runs_ = 0;
    return train({"run.dtype=bf16", "dropout.attn=0", "train.global_batch=2", "train.eval_every=0",
                  str_cat("train.eval_sequences=", ranks_.size()), "log.stats_every=0", "checkpoint.every=2",
                  "schedule.kind=constant", "schedule.warmup_steps=1", str_cat("mesh.data=", ranks_.size()),
                  str_cat("train.steps=", steps)},
                 std::nullopt);
  }
  /// Those of two blocks over a rank's micro-batches, forward and backward.
  int64_t calls_of(int64_t steps) const { return steps * 2 * 2 * 2 / ranks_.size(); }

  AttentionKernels wanted_ = AttentionKernels::kAuto;
  int64_t version_ = 91900, free_bytes_ = int64_t{1} << 30;
  int plan_runs_ = 0;
};

TEST_F(CudnnTrainer, ChoosesWhoseAttentionAndKeepsIt) {
  if (ranks_.size() > 2) GTEST_SKIP() << "on one and two ranks";
  const bool first = ranks_.rank() == 0;
  const std::string line = "attention uses cuDNN 9.19.0, with a workspace of 0 MB";
  End end = train_to(4);
  ASSERT_EQ(end.code, ExitCode::kDone) << end.error;
  const fs::path whole = put_aside("whole");

  end = train_to(2);
  ASSERT_EQ(end.code, ExitCode::kDone) << end.error;
  EXPECT_TRUE(!first || says(end, line));
  const auto choices = choices_from_json(text_of(run_dir() / "choices.json"), "").sections.at("attention").choices;
  EXPECT_EQ(choices.size(), 2U);
  for (const auto& [question, answer] : choices) EXPECT_EQ(answer, "cudnn") << question;
  // One step without effect has the plans; the first rank compares each twice; the validation has forwards alone.
  EXPECT_EQ(plan_runs_, calls_of(3) + (first ? 4 : 0) + 2);
  comm::barrier(ranks_);
  if (first) fs::remove(run_dir() / "choices.json");  // the checkpoint has them
  comm::barrier(ranks_);

  end = train_to(4);
  ASSERT_EQ(end.code, ExitCode::kDone) << end.error;
  EXPECT_TRUE(!first || (says(end, "2 algorithm choices from the checkpoint") && says(end, line)));
  EXPECT_FALSE(says(end, "algorithms chosen"));
  EXPECT_EQ(rows(run_dir()).back(), rows(whole).back());

  version_ = 92000;
  end = train_to(6);
  ASSERT_EQ(end.code, ExitCode::kDone) << end.error;
  EXPECT_TRUE(!first || (says(end, "measured again: attention: cuDNN 9.20.0, made with cuDNN 9.19.0") &&
                         says(end, "attention uses cuDNN 9.20.0")));
}

TEST_F(CudnnTrainer, WhatOneRankCannotDoNoRankDoes) {
  if (ranks_.size() != 2) GTEST_SKIP() << "on two ranks";
  if (ranks_.rank() == 1) free_bytes_ = 0;
  End end = train_to(2);
  ASSERT_EQ(end.code, ExitCode::kDone) << end.error;
  EXPECT_EQ(plan_runs_, ranks_.rank() == 0 ? 4 : 0) << "but for the comparison";
  if (ranks_.rank() == 0) {
    EXPECT_TRUE(says(end, "attention uses our own kernels: expected 2048 bytes of memory for cuDNN's workspace, got 0"))
        << PrintToString(end.lines);
    EXPECT_FALSE(says(end, "uses cuDNN"));
  }
  put_aside("auto");
  wanted_ = AttentionKernels::kCudnn;
  end = train_to(2);
  EXPECT_EQ(end.code, ExitCode::kInput);
  EXPECT_THAT(end.error, HasSubstr("rank 1 of 2"));
  EXPECT_THAT(end.error, HasSubstr("\"cudnn\" cannot be used: expected 16 bytes of memory for cuDNN's"));
}

TEST_F(CudnnTrainer, RanksWithSeveralVersionsHaveTheirOwn) {
  if (ranks_.size() != 2) GTEST_SKIP() << "on two ranks";
  if (ranks_.rank() == 1) version_ = 91901;
  const End end = train_to(2);
  ASSERT_EQ(end.code, ExitCode::kDone) << end.error;
  EXPECT_EQ(plan_runs_, 0);
  if (ranks_.rank() == 0) {
    EXPECT_TRUE(says(end, "ranks have 2 kinds of devices or libraries (attention)"));
    EXPECT_TRUE(says(end, "attention uses our own kernels: expected one version of cuDNN"));
  }
}

}  // namespace
}  // namespace ashlar::testing
