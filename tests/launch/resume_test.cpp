// A run that is killed, stopped or damaged and started again gives the numbers of the run that never stopped, to the
// bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

#include "core/base/philox.h"
#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/long_form.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;

class Resume : public ::testing::Test {
 protected:
  // The numbers of the unbroken run.
  std::vector<std::string> unbroken() {
    const ShellResult r = run_.ashlar("train tiny.toml run.dir=unbroken");
    EXPECT_EQ(r.code, 0) << r.err;
    const auto rows = run_.exact_metrics("unbroken");
    EXPECT_EQ(rows.size(), 63u);  // 60 steps, three validations
    return rows;
  }
  RunFixture run_;
};

TEST_F(Resume, SigkillAtRandomMoments) {
  const auto begin = std::chrono::steady_clock::now();
  const auto expected = unbroken();
  // Kills come at any moment of a whole run, however fast this machine is just now.
  const auto whole_ms = static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count());
  const int kills = long_form() ? 500 : 20;
  int finished_early = 0, broken_runs = 0;
  std::vector<int> killed_at;
  for (int done = 0; done < kills;) {
    // One broken run: killed again and again until it reaches its end.
    const std::string dir = str_cat("broken-", broken_runs++);
    for (int attempt = 0;; ++attempt) {
      ASSERT_LT(attempt, 400) << "the run makes no progress";
      const pid_t pid = run_.start("train tiny.toml run.dir=" + dir, dir + ".log");
      if (done < kills) {
        const uint32_t random = Philox::block(17, broken_runs, attempt)[0];
        std::this_thread::sleep_for(std::chrono::milliseconds(random % std::max(whole_ms, 50U)));
        kill(pid, SIGKILL);
      }
      const int code = RunFixture::wait_for(pid);
      if (code == 0) {
        ++finished_early;
        break;
      }
      ASSERT_EQ(code, 128 + SIGKILL) << run_.read(dir + ".log");
      ++done;
    }
    ASSERT_EQ(run_.exact_metrics(dir), expected) << dir;
    fs::remove_all(run_.dir() / dir);
  }
  std::cout << kills << " kills over " << broken_runs << " runs, every row equal\n";
  RecordProperty("kills", kills);
}

TEST_F(Resume, SignalsSaveAndExitWithTheirOwnCodes) {
  const auto expected = unbroken();
  const std::pair<int, int> kSignals[] = {{SIGTERM, 76}, {SIGINT, 77}, {SIGUSR1, 75}};
  const std::string command = "train tiny.toml run.dir=stopped train.steps=60 checkpoint.every=0";
  for (const auto& [signal, code] : kSignals) {
    const size_t before = run_.exact_metrics("stopped").size();
    const pid_t pid = run_.start(command, "stopped.log");
    // Once it has made a few steps of its own.
    for (int i = 0; i < 2000 && run_.exact_metrics("stopped").size() < before + 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(pid, signal);
    ASSERT_EQ(RunFixture::wait_for(pid), code) << run_.read("stopped.log");
  }
  const ShellResult r = run_.ashlar(command);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(run_.exact_metrics("stopped"), expected);
}

TEST_F(Resume, DamagedNewestCheckpointFallsBackAndSaysSo) {
  const auto expected = unbroken();
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=damaged checkpoint.keep=3").code, 0);
  fs::remove_all(run_.dir() / "damaged/checkpoints/step-00000060");
  // One flipped bit in the middle of the newest weights.
  const fs::path weights = run_.dir() / "damaged/checkpoints/step-00000057/weights-00000.safetensors";
  const auto middle = static_cast<std::streamoff>(fs::file_size(weights) / 2);
  std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(middle);
  const char byte = static_cast<char>(file.get());
  file.seekp(middle);
  file.put(static_cast<char>(byte ^ 0x10));
  file.close();
  const ShellResult r = run_.ashlar("train tiny.toml run.dir=damaged checkpoint.keep=3");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE((r.out + r.err).find("step-00000057"), std::string::npos) << r.out << r.err;
  EXPECT_NE(r.out.find("step-00000054 at step 54"), std::string::npos) << r.out;
  EXPECT_EQ(run_.exact_metrics("damaged"), expected);
}

// Of a checkpoint that has lost its manifest nothing can be read, not even what its run was.
TEST_F(Resume, ACheckpointWithoutItsManifestIsPassedOver) {
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=a train.steps=6").code, 0);
  for (const char* damage : {"rm $N/manifest.json", "rm $N/*", "rm -r $N; touch $N", "rm -r $N; ln -s /nowhere $N"}) {
    SCOPED_TRACE(damage);
    const ShellResult r = run_shell(str_cat(
        "cd ", shell_quote(run_.dir().string()), " && rm -rf b && cp -r a b && N=", "b/checkpoints/step-00000006 && ",
        damage, " && ", shell_quote(ASHLAR_BINARY), " train tiny.toml run.dir=b train.steps=5"));
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.out.find("step-00000006' is damaged and skipped"), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("step-00000003 at step 3"), std::string::npos) << r.out;
  }
}

TEST_F(Resume, SavesThatFailAreToldAndTriedAgainAndEndTheRunAtTheThird) {
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=a train.steps=6").code, 0);
  // Weights do not fit 40 KB, metrics of a few steps do.
  const ShellResult limited = run_shell("cd " + shell_quote(run_.dir().string()) + " && bash -c 'ulimit -f 40; exec " +
                                        std::string(ASHLAR_BINARY) + " train tiny.toml run.dir=a'");
  EXPECT_EQ(limited.code, 6) << limited.err;
  const std::string said = limited.out + limited.err;
  EXPECT_NE(said.find("tried again at the next interval (1 of 3 in a row): [file] cannot write"), std::string::npos)
      << said;
  EXPECT_NE(said.find("(2 of 3 in a row)"), std::string::npos) << said;
  EXPECT_NE(said.find("three saves in a row failed: "), std::string::npos) << said;
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(run_.dir() / "a/checkpoints"))
    left.push_back(entry.path().filename());
  EXPECT_EQ(left.size(), 2U) << "steps 3 and 6, and nothing of the failed ones";
  const fs::path foreign = run_.dir() / "a/checkpoints/step-00000009.partial";
  fs::create_directory(foreign);
  std::ofstream(foreign / "notes") << "somebody's own";
  const ShellResult two = run_.ashlar("launch -np 2 train tiny.toml run.dir=a train.steps=12");
  EXPECT_EQ(two.code, 0) << two.err;
  fs::remove_all(foreign);
  const size_t at = two.out.find("(1 of 3 in a row)");
  EXPECT_NE(at, std::string::npos) << two.out;
  EXPECT_EQ(two.out.find("(1 of 3 in a row)", at + 1), std::string::npos) << "once: " << two.out;
  EXPECT_EQ(run_.ashlar("train tiny.toml run.dir=a").code, 0);
  EXPECT_EQ(run_.metric("a", "loss").size(), 60U);
}

TEST_F(Resume, MoreStepsContinueAFinishedRun) {
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=a schedule.kind=constant").code, 0);
  const ShellResult again = run_.ashlar("train tiny.toml run.dir=a schedule.kind=constant");
  EXPECT_EQ(again.code, 0);
  EXPECT_NE(again.out.find("nothing to train"), std::string::npos) << again.out;
}

TEST_F(Resume, ThreadsAndMicroBatchesOfAResumedRunMayNotChangeTheModelInSilence) {
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=a").code, 0);
  const ShellResult r = run_.ashlar("train tiny.toml run.dir=a model.n_layers=2");
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("model.n_layers"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("3"), std::string::npos);
}

}  // namespace
}  // namespace ashlar::testing
