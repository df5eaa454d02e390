// `ashlar launch --restarts`: when it starts again, what it counts; a drill with random kills (long form: a kill a
// minute on 8 ranks for 2 hours; ASHLAR_RESTARTS_SECONDS says how long instead).
#include "launch/commands/restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <sstream>
#include <system_error>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/long_form.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RunFixture;

int64_t newest_saved(const fs::path& checkpoints) {
  std::error_code none;
  int64_t newest = 0;
  for (const auto& entry : fs::directory_iterator(checkpoints, none))
    newest = std::max<int64_t>(newest, std::atoi(entry.path().filename().c_str() + std::size("step-") - 1));
  return newest;
}

// Attempts that are written down: each makes steps, saves some and ends with a code.
class KeepAlive : public ::testing::Test {
 protected:
  struct Attempt {
    int64_t until = 0, saved = 0;
    int code = 5;
    bool renews = false;
  };
  int keep(const std::vector<Attempt>& attempts, int64_t restarts, std::vector<std::string> words = {"c.toml"}) {
    fs::create_directories(dir() / "checkpoints");
    size_t next = 0;
    const auto run = [&](const std::vector<std::string>& given) {
      words_.push_back(given);
      const Attempt a = attempts.at(next++);
      if (a.renews) fs::rename(dir(), str_cat(dir().string(), ".old-1")), fs::create_directories(dir() / "checkpoints");
      const int64_t from = newest_saved(dir() / "checkpoints");
      std::ofstream rows(dir() / "metrics.jsonl", std::ios::app);
      for (int64_t step = from + 1; step <= a.until; ++step)
        rows << "{\"step\":" << step << ",\"loss\":1,\"step_ms\":1000}\n";
      if (a.saved > 0) fs::create_directories(dir() / "checkpoints" / str_cat("step-0000000", a.saved));
      return a.code;
    };
    const auto wait = [&](std::chrono::milliseconds time) {
      waits_.push_back(time.count() / 1000);
      cut();
      return told_;
    };
    const int code = keep_alive({.restarts = restarts,
                                 .run_dir = dir(),
                                 .words = std::move(words),
                                 .run = run,
                                 .asked_to_end = [&] { return told_; },
                                 .wait = wait,
                                 .say = [&](const std::string& text) { said_ += text + "\n"; }});
    EXPECT_EQ(next, attempts.size()) << said_;
    return code;
  }
  // What a resume does with the rows beyond its checkpoint.
  void cut() {
    const int64_t newest = newest_saved(dir() / "checkpoints");
    std::ifstream in(dir() / "metrics.jsonl");
    std::string kept;
    for (std::string line; std::getline(in, line);)
      if (std::atoi(line.c_str() + 8) <= newest) kept += line + "\n";
    in.close();
    std::ofstream(dir() / "metrics.jsonl") << kept;
  }
  fs::path dir() const { return scratch_.path() / "r"; }

  testing::ScratchDir scratch_;
  std::vector<int64_t> waits_;
  std::vector<std::vector<std::string>> words_;
  std::string said_;
  bool told_ = false;
};

TEST_F(KeepAlive, StartsAgainAfterALostRankAlone) {
  for (const int code : {0, 2, 3, 4, 6, 70, 75, 76, 77}) EXPECT_EQ(keep({{.until = 1, .code = code}}, 3), code);
  told_ = true;
  EXPECT_EQ(keep({{.until = 1, .code = 5}}, 3), 5) << "a signal has come";
  EXPECT_THAT(said_, Not(HasSubstr("restart 1 in"))) << "nor is one announced";
}

TEST_F(KeepAlive, CountsWhatIsKept) {
  EXPECT_EQ(keep({{.until = 5, .saved = 4}, {.until = 7, .saved = 6}, {.until = 9, .saved = 9, .code = 0}}, 1), 0);
  EXPECT_THAT(waits_, ElementsAre(1, 1)) << "each has got on";
  EXPECT_THAT(said_, AllOf(HasSubstr("restart 1 in 1 s, from the checkpoint of step 4"),
                           HasSubstr("goodput: 9 of 11 steps kept (81.8%), 9 of "), HasSubstr(", 2 restarts\n")));
  std::ifstream in(dir() / "metrics.jsonl");
  const std::string rows{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(rows,
              AllOf(HasSubstr("{\"step\":4,\"restarts\":0,\"kept_steps\":4,\"made_steps\":5,\"goodput_steps\":0.8,"),
                    HasSubstr("{\"step\":9,\"restarts\":2,\"kept_steps\":9,\"made_steps\":11,")));
}

TEST_F(KeepAlive, EndsWhenNothingNewIsCommitted) {
  EXPECT_EQ(keep({{.until = 5, .saved = 4}, {.until = 5}, {.until = 4}, {.until = 6}}, 3), 5);
  EXPECT_THAT(waits_, ElementsAre(1, 2, 4));
  EXPECT_THAT(said_, AllOf(HasSubstr("3 restarts in a row without a new checkpoint (the newest is of step 4)"),
                           HasSubstr("goodput: 4 of 8 steps kept (50.0%)")));
}

TEST_F(KeepAlive, BeginsAnewOnce) {
  fs::create_directories(dir() / "checkpoints/step-00000009");
  EXPECT_EQ(keep({{.until = 9}, {.until = 3, .saved = 2, .renews = true}, {.until = 4, .saved = 4, .code = 0}}, 2,
                 {"c.toml", "--restart"}),
            0);
  EXPECT_THAT(words_, ElementsAre(ElementsAre("c.toml", "--restart"), ElementsAre("c.toml", "--restart"),
                                  ElementsAre("c.toml")))
      << "not before the new run stands";
}

TEST(RunDirectoryOf, IsThatOfTrain) {
  const RunFixture run;
  const fs::path config = run.dir() / "tiny.toml";
  const auto of = [](std::vector<std::string> words) { return run_directory_of(words).string(); };
  EXPECT_EQ(of({config.string()}), "run");
  EXPECT_EQ(of({config.string(), "run.dir=x/y", "--restart"}), "x/y");
  EXPECT_EQ(of({"--from", "/models/gpt2/", "data.path=d"}), "runs/gpt2");
  EXPECT_EQ(of({"--from", "/models/gpt2", "run.dir=z"}), "z");
  EXPECT_EQ(of({run.dir().string()}), run.dir().string());
}

int64_t memory_kb(pid_t pid) {
  std::ifstream status(str_cat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::atoll(line.c_str() + 6);
  return 0;
}
int64_t descriptors(pid_t pid) {
  return std::distance(fs::directory_iterator(str_cat("/proc/", pid, "/fd")), fs::directory_iterator());
}

TEST(KeptAlive, ThroughRandomKillsSlow) {
  using Clock = std::chrono::steady_clock;
  const bool whole = testing::long_form();
  const char* given = std::getenv("ASHLAR_RESTARTS_SECONDS");
  const int64_t seconds = given != nullptr ? std::atoll(given) : whole ? 7200 : 60;
  const int ranks = whole ? 8 : 2, every_ms = whole ? 60'000 : 500, most_kills = whole ? 1'000'000 : 3;
  const RunFixture run;
  const std::string words = str_cat(
      "train tiny.toml mesh.data=2 ",
      whole ? "mesh.pipeline=2 mesh.tensor=2 vocab.pad_to=2 model.n_layers=4 train.micro_batch=1 " : "",
      "train.steps=1000000 schedule.warmup_steps=5 schedule.decay_steps=1000000 train.eval_every=0 checkpoint.every=",
      whole ? 50 : 20, " log.every=100000");
  const pid_t pid = run.start(str_cat("launch -np ", ranks, " --restarts 5 ", words, " run.dir=r"), "log");
  std::mt19937 random(11);
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  int kills = 0;
  int64_t fds = 0, kb = 0, saved = 0;
  for (auto next = Clock::now() + std::chrono::milliseconds(every_ms); Clock::now() < end && kills < most_kills;
       next += std::chrono::milliseconds(every_ms)) {
    while (Clock::now() < std::min(next, end)) usleep(20'000);
    ASSERT_EQ(run.read("log").find("goodput: "), std::string::npos) << "it has ended: " << run.read("log");
    // A machine may take longer to start than from kill to kill: each start gets on before it is killed.
    const int64_t newest = newest_saved(run.dir() / "r/checkpoints");
    const auto rank = run.find_rank_process(static_cast<int>(random() % static_cast<unsigned>(ranks)));
    if (Clock::now() >= end || newest == saved || !rank) continue;
    saved = newest;
    kill(*rank, SIGKILL);
    if (++kills == 2) fds = descriptors(pid), kb = memory_kb(pid);
  }
  for (int i = 0; i < 6000 && newest_saved(run.dir() / "r/checkpoints") == saved; ++i) usleep(10'000);
  const int64_t fds_now = descriptors(pid), kb_now = memory_kb(pid);
  kill(pid, SIGTERM);
  EXPECT_EQ(RunFixture::wait_for(pid), 76) << run.read("log");
  const std::string log = run.read("log");
  const size_t at = log.rfind("goodput: ");
  ASSERT_NE(at, std::string::npos) << log;
  int64_t kept = 0, made = 0;
  ASSERT_EQ(std::sscanf(log.c_str() + at, "goodput: %ld of %ld", &kept, &made), 2) << log;
  std::cout << kills << " kills in " << seconds << " s, " << log.substr(at) << "descriptors " << fds << " -> "
            << fds_now << ", " << kb << " -> " << kb_now << " KB\n";
  EXPECT_GE(kills, whole ? 1 : 2);
  EXPECT_GE(kept, whole ? made * 95 / 100 : 1) << made;
  if (kills >= 2) {
    EXPECT_LE(fds_now, fds + 2);
    EXPECT_LE(kb_now, kb + 2048);
  }
  // Nothing lost, nothing twice; and the steps of an unbroken run.
  const std::vector<double> losses = run.metric("r", "loss");
  ASSERT_GE(std::ssize(losses), kept) << "more where the signal has met a start: rows that the next start makes again";
  const int64_t compared = std::min<int64_t>(kept, 2000);
  const std::string one = str_cat(words, " run.dir=one train.steps=", compared, " checkpoint.every=0");
  ASSERT_EQ(run.ashlar(str_cat("launch -np ", ranks, " ", one)).code, 0);
  const std::vector<double> unbroken = run.metric("one", "loss");
  ASSERT_EQ(std::ssize(unbroken), compared);
  for (int64_t i = 0; i < compared; ++i)
    ASSERT_EQ(losses[static_cast<size_t>(i)], unbroken[static_cast<size_t>(i)]) << "step " << i + 1;
}

}  // namespace
}  // namespace ashlar::launch
