#include "launch/commands/subcommands.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/io/posix_file.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/timed_steps.h"
#include "launch/commands/timing.h"
#include "launch/training/checkpointer.h"
#include "launch/training/memory.h"
#include "launch/training/step_all_reduce.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {

namespace {

constexpr std::string_view kBenchSave = "bench save";

struct SaveArguments {
  int64_t steps = 50, every = 5;
  bool json = false;
  config::RunConfig config;
  std::filesystem::path dir;
};

SaveArguments parse_save(std::span<const std::string> words, const Session& session) {
  Arguments arguments("bench save", words);
  SaveArguments a{.steps = arguments.integer("--steps", 50, 2, 100000),
                  .every = arguments.integer("--every", 5, 2, 1000),
                  .json = arguments.flag("--json")};
  std::vector<std::string> files = arguments.positionals();
  const std::vector<std::string> overrides = take_overrides(files);
  arguments.expect(files, 2, "a configuration file and a directory",
                   " words; usage: ashlar bench save CONFIG DIR [section.key=value ...]");
  if (a.steps % a.every != 0)
    throw input_error(kBenchSave, "--steps ", a.steps, " is not a multiple of --every ", a.every,
                      "; choose a multiple");
  a.config = config_of_steps(kBenchSave, files[0], overrides, session);
  a.dir = std::filesystem::absolute(files[1]).lexically_normal();
  return a;
}

/// A directory owned by the benchmark for the lifetime of this object; one rank creates it and removes its contents.
class WorkDirectory {
 public:
  WorkDirectory(std::filesystem::path path, comm::ControlPlane& ranks) : path_(std::move(path)) {
    comm::try_on_first_rank(ranks, [&] {
      std::error_code error;
      const bool there = std::filesystem::exists(path_, error);
      if (there && (!std::filesystem::is_directory(path_, error) || !std::filesystem::is_empty(path_, error))) {
        throw input_error(kBenchSave,
                          "expected a new or empty directory, since its content is removed at the end, got ",
                          printable(path_.string()), "; choose another directory");
      }
      io::create_directories(path_);
      owned_ = true;
      created_ = !there;
    });
  }
  ~WorkDirectory() {
    std::error_code error;  // ignored: the next benchmark refuses a directory that is not empty
    if (owned_) std::filesystem::remove_all(path_ / "checkpoints", error);
    if (created_) std::filesystem::remove(path_, error);
  }
  WorkDirectory(const WorkDirectory&) = delete;
  WorkDirectory& operator=(const WorkDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool owned_ = false, created_ = false;
};

/// Measured times in milliseconds.
struct SaveTimes {
  std::vector<double> with, without;    ///< times of turns (`every` steps each) with and without saves
  std::vector<double> saving, others;   ///< turns with saves: loop times of steps that save, and of the others
  std::vector<double> plain;            ///< turns without saves: loop times of all steps
  std::vector<double> check, snapshot;  ///< a step that saves: its check for non-finite values, its snapshot
  std::vector<double> left;             ///< remaining time of a save at the end of its turn
};

class SaveBench {
 public:
  SaveBench(const SaveArguments& arguments, const std::filesystem::path& dir, comm::Bootstrap& bootstrap)
      : every_(arguments.every),
        dir_(dir),
        ranks_(bootstrap.control()),
        steps_(arguments.config, bootstrap),
        config_toml_(config::to_toml(arguments.config)),
        checkpoints_({.ranks = ranks_, .log = log_, .run_dir = dir, .keep = {.newest = 1}}) {
    comm::try_on_all_ranks(ranks_, [&] {
      training::Engine& engine = steps_.engine();
      snapshot_bytes_ = checkpoints_.reserve(engine.ctx(), engine.store(), *engine.optimizer());
    });
    for (int i = 0; i < 2; ++i) steps_.step(false);
  }

  void turn(bool saves) {
    const double begin = now_ms();
    double loop = 0;
    for (int64_t i = 0; i < every_; ++i) {
      const double start = now_ms();
      step(saves && i == 0);
      const double took = now_ms() - start;
      if (!saves || i > 0) (saves ? times_.others : times_.plain).push_back(took);
      if (i == 0) loop = took;
    }
    const double due = now_ms();
    if (saves) {
      checkpoints_.wait_until_free();
      times_.left.push_back(now_ms() - due);
      times_.saving.push_back(loop + times_.left.back());
      checkpoints_.wait();
      comm::try_on_all_ranks(ranks_, [&] {
        if (!log_.warnings().empty())
          throw resource_error(kBenchSave,
                               "the benchmark ends at the first warning of a save: ", log_.warnings().front());
      });
    }
    (saves ? times_.with : times_.without).push_back(now_ms() - begin);
  }

  const SaveTimes& times() const { return times_; }
  int64_t bytes() const { return comm::sum_of(ranks_, snapshot_bytes_); }

 private:
  /// Runs one iteration of a loop that works like the trainer's step loop.
  void step(bool saves) {
    steps_.step(false);
    ++step_;
    checkpoints_.poll(training::StepExchange(ranks_, {.save = checkpoints_.state()}).wait().save);
    if (!saves) return;
    training::Engine& engine = steps_.engine();
    const double start = now_ms();
    engine.check_state(step_);
    const double checked = now_ms();
    Event* const copied = checkpoints_.begin(engine.ctx(), {.ranks = ranks_,
                                                            .run_dir = dir_,
                                                            .store = engine.store(),
                                                            .optimizer = engine.optimizer(),
                                                            .state = {.step = step_},
                                                            .config_toml = config_toml_,
                                                            .tokenizer_json = ""});
    engine.update_after(copied);
    times_.check.push_back(checked - start);
    times_.snapshot.push_back(now_ms() - checked);
  }

  const int64_t every_;
  const std::filesystem::path dir_;
  comm::ControlPlane& ranks_;
  Log log_{[](std::string_view) {}};  // collects warnings of failures, prints nothing
  TimedSteps steps_;
  const std::string config_toml_;
  training::Checkpointer checkpoints_;
  SaveTimes times_;
  int64_t step_ = 0, snapshot_bytes_ = 0;
};

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }
double worst(const std::vector<double>& values) { return *std::ranges::max_element(values); }

std::vector<double> ratios(const std::vector<double>& above, const std::vector<double>& below) {
  std::vector<double> all;
  for (size_t i = 0; i < above.size(); ++i) all.push_back(above[i] / below[i]);
  return all;
}

nlohmann::ordered_json save_json(const SaveTimes& t, int64_t bytes) {
  const double other = quantile(t.others, 0.5);
  return {{"checkpoint_bytes", bytes},
          {"loop_ms_saving", t.saving},
          {"loop_ms_others", t.others},
          {"loop_ms_without", t.plain},
          {"loop_ratio", quantile(t.saving, 0.5) / other},
          {"loop_ratio_max", worst(t.saving) / other},
          {"wall_ratio", sum(t.with) / sum(t.without)},
          {"turn_ratios", ratios(t.with, t.without)},
          {"check_ms", quantile(t.check, 0.5)},
          {"snapshot_ms", quantile(t.snapshot, 0.5)},
          {"left_ms", quantile(t.left, 0.5)}};
}

void print_save(std::ostream& out, const SaveTimes& t, const SaveArguments& a, int64_t bytes) {
  const double other = quantile(t.others, 0.5);
  out << absl::StrFormat("%s in %s, saved every %d of %d steps, alternating with %d steps without saves\n",
                         training::human_bytes(bytes), a.dir.string(), a.every, a.steps, a.steps);
  out << absl::StrFormat(
      "loop of a step with a save: %.3f of the others' median of %.1f ms (min %.3f, max %.3f): check %.1f ms, "
      "snapshot %.1f ms, remaining when the next is due %.1f ms\n",
      quantile(t.saving, 0.5) / other, other, *std::ranges::min_element(t.saving) / other, worst(t.saving) / other,
      quantile(t.check, 0.5), quantile(t.snapshot, 0.5), quantile(t.left, 0.5));
  const std::vector<double> turns = ratios(t.with, t.without);
  out << absl::StrFormat("time with saves %.3f of that without (quartiles of turns %.3f, %.3f, %.3f)\n",
                         sum(t.with) / sum(t.without), quantile(turns, 0.25), quantile(turns, 0.5),
                         quantile(turns, 0.75));
}

}  // namespace

int run_bench_save(Words words, Session& session) {
  std::ostream& out = session.out;
  comm::ControlPlane& ranks = session.bootstrap.control();
  SaveArguments arguments;
  comm::try_on_all_ranks(ranks, [&] { arguments = parse_save(words, session); });
  const WorkDirectory dir(arguments.dir, ranks);
  SaveBench bench(arguments, dir.path(), session.bootstrap);
  for (int64_t turn = 0; turn < arguments.steps / arguments.every; ++turn) {
    const bool first = turn % 2 == 0;
    bench.turn(first);
    bench.turn(!first);
  }
  const int64_t bytes = bench.bytes();
  if (arguments.json) {
    out << save_json(bench.times(), bytes).dump() << "\n";
  } else {
    print_save(out, bench.times(), arguments, bytes);
  }
  return 0;
}

}  // namespace ashlar::launch
