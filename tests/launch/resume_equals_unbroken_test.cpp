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
#include "tests/support/file_bytes.h"
#include "tests/support/long_form.h"
#include "tests/support/sanitizers.h"

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
  // What a kill leaves is the same under the sanitizers, which cannot report of it.
  const int kills = long_form() ? 500 : under_address_sanitizer() ? 5 : 20;
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
  EXPECT_NE(said.find("retrying at the next interval (1 of 3 in a row): [file] cannot write"), std::string::npos)
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
  // A key of steps that are not taken does not change what the run says of itself.
  const std::string config = run_.read("a/config.toml");
  const ShellResult other = run_.ashlar("train tiny.toml run.dir=a schedule.kind=constant optimizer.lr=0.009");
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_NE(other.out.find("give another run.dir for a new run"), std::string::npos) << other.out;
  EXPECT_EQ(run_.read("a/config.toml"), config);
}

// What was derived from the number of steps stays when a finished run gets more of them: no second warm-up, and what
// becomes of the decay is said.
TEST_F(Resume, MoreStepsDoNotWarmUpAgain) {
  const std::string words = "train tiny.toml run.dir=a schedule.warmup_steps=default train.eval_every=0 train.steps=";
  ASSERT_EQ(run_.ashlar(words + "40").code, 0);
  const ShellResult more = run_.ashlar(words + "400");
  ASSERT_EQ(more.code, 0) << more.err;
  const std::vector<double> lr = run_.metric("a", "lr");
  ASSERT_EQ(lr.size(), 400U);
  EXPECT_EQ(lr[0], 5e-3);
  EXPECT_EQ(lr[1], 1e-2);
  for (size_t step = 40; step < 400; ++step) EXPECT_NEAR(lr[step], 1e-3, 1e-15) << step;
  const std::string start = slurp(run_.dir() / "a/start.txt");
  EXPECT_NE(start.find("schedule.warmup_steps = 2 (from a/checkpoints/step-00000040)"), std::string::npos) << start;
  EXPECT_EQ(more.out.find("warmup_steps was"), std::string::npos) << more.out;
  const char* const said =
      "the cosine schedule over 400 steps: its decay ends at step 40, and every later step has lr 1.00e-03; "
      "schedule.decay_steps = 398 would end it at the last step; step 40 had lr 1.02e-03, step 41 has 1.00e-03";
  EXPECT_NE(more.out.find(said), std::string::npos) << more.out;
  // Who wants another gives the key, and sees what the next step has.
  const ShellResult given = run_.ashlar(words + "402 schedule.decay_steps=400");
  ASSERT_EQ(given.code, 0) << given.err;
  EXPECT_EQ(run_.metric("a", "lr").size(), 402U);
  EXPECT_NE(given.out.find("its decay goes from step 2 to the last; step 400 had lr 1.00e-03, step 401"),
            std::string::npos)
      << given.out;
  // Fewer steps than the decay has.
  const std::string other = "train tiny.toml run.dir=b schedule.kind=linear train.eval_every=0 checkpoint.every=5 ";
  ASSERT_EQ(run_.ashlar(other + "train.steps=20").code, 0);
  fs::remove_all(run_.dir() / "b/checkpoints/step-00000020");
  const ShellResult fewer = run_.ashlar(other + "train.steps=16");
  ASSERT_EQ(fewer.code, 0) << fewer.err;
  EXPECT_NE(fewer.out.find("its decay would end at step 20, so that the last step has lr 4.00e-03"), std::string::npos)
      << fewer.out;
}

// A run is where its directory is; that, or the config.toml in it, names it.
TEST_F(Resume, ARunDirectoryIsContinuedUnderAnyName) {
  const std::string small = "train.steps=8 schedule.kind=constant train.eval_every=0 ";
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=whole train.steps=24 schedule.kind=constant train.eval_every=0").code,
            0);
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=a " + small).code, 0);
  const ShellResult same = run_.ashlar("train a train.steps=12");
  ASSERT_EQ(same.code, 0) << same.err;
  EXPECT_NE(same.out.find("continuing from a/checkpoints/step-00000008"), std::string::npos) << same.out;
  EXPECT_EQ(same.out.find("continues in its current directory"), std::string::npos) << same.out;
  fs::rename(run_.dir() / "a", run_.dir() / "b");
  const ShellResult moved = run_.ashlar("train b/ train.steps=16");
  ASSERT_EQ(moved.code, 0) << moved.err;
  EXPECT_NE(moved.out.find("the run in b, started as a, continues in its current directory"), std::string::npos)
      << moved.out;
  EXPECT_FALSE(fs::exists(run_.dir() / "a"));
  fs::rename(run_.dir() / "b", run_.dir() / "c");
  const ShellResult file = run_.ashlar("train c/config.toml train.steps=20");
  ASSERT_EQ(file.code, 0) << file.err;
  EXPECT_NE(file.out.find("continuing from c/checkpoints/step-00000016"), std::string::npos) << file.out;
  EXPECT_FALSE(fs::exists(run_.dir() / "b"));
  const ShellResult two = run_.ashlar("launch -np 4 train c train.steps=24");
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_NE(two.out.find("train.micro_batch was 2, is 1"), std::string::npos) << two.out;
  const std::vector<double> got = run_.metric("c", "loss"), expected = run_.metric("whole", "loss");
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-5 * expected[i]) << i;
  // Another directory is none, and a named run.dir stands.
  const ShellResult none = run_.ashlar("train data");
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("'data': expected a configuration file, or the directory of a run"), std::string::npos);
  ASSERT_EQ(run_.ashlar("train c run.dir=d train.steps=2 schedule.warmup_steps=1").code, 0);
  EXPECT_EQ(run_.metric("d", "loss").size(), 2U);
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
