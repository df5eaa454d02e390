// Who owns a run's directory: locks, file systems without locks, `--restart`.
#include "launch/training/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/tuning/tuner.h"
#include "launch/watch/process.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/mutate.h"
#include "tests/support/sanitizers.h"

namespace ashlar::training {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

int no_locks(int /*fd*/, int /*operation*/) { return errno = ENOLCK, -1; }
int liar(int /*fd*/, int /*operation*/) { return 0; }  // Lustre with localflock, asked on two machines
int not_supported(int /*fd*/, int /*operation*/) { return errno = EOPNOTSUPP, -1; }

class Directory : public ::testing::Test {
 protected:
  std::string refusal(DirectoryLock::FileLock file_lock = flock) const {
    RunDirectory other(dir_, file_lock);
    try {
      other.lock();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      return error.what();
    }
    return "";
  }
  std::string read(const fs::path& path) const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::string message(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      return error.what();
    }
    return "";
  }
  // A child that locks the directory and waits.
  pid_t holder(DirectoryLock::FileLock file_lock) const {
    fs::remove(scratch_.path() / "ready");
    const pid_t pid = fork();
    if (pid == 0) {
      RunDirectory held(dir_, file_lock);
      held.lock();
      std::ofstream(scratch_.path() / "ready");
      pause();
    }
    while (!fs::exists(scratch_.path() / "ready")) usleep(1000);
    return pid;
  }
  static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  ashlar::testing::ScratchDir scratch_;
  const fs::path dir_ = scratch_.path() / "run";
};

TEST_F(Directory, TheHolderIsNamedAndAKilledOneHoldsNothing) {
  const pid_t pid = holder(flock);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("another process is training in " + dir_.string() + ": process " +
                                         std::to_string(pid) + " on " + this_process().host + " since 20"),
                               HasSubstr("set run.dir to another directory")));
  end(pid);
  EXPECT_EQ(refusal(), "");
}

TEST_F(Directory, AFileSystemWithoutLocksIsNotAHolder) {
  for (const DirectoryLock::FileLock kind : {no_locks, not_supported}) {
    RunDirectory mine(dir_, kind);
    EXPECT_THAT(mine.lock(), HasSubstr("has no file locks (")) << "said in one line";
    EXPECT_THAT(refusal(kind), HasSubstr("another process is training in " + dir_.string() + ": process " +
                                         std::to_string(getpid()) + " on "));
    EXPECT_THAT(refusal(flock), HasSubstr("another process is training")) << "one that can lock sees it, too";
  }
  EXPECT_FALSE(fs::exists(dir_ / ".lock.held"));
}

TEST_F(Directory, WithoutLocksAKilledHolderIsReplaced) {
  const pid_t pid = holder(no_locks);
  EXPECT_THAT(refusal(no_locks), HasSubstr("process " + std::to_string(pid)));
  end(pid);
  RunDirectory mine(dir_, no_locks);
  mine.lock();
  EXPECT_THAT(read(dir_ / ".lock.held"), HasSubstr("\"pid\":" + std::to_string(getpid())));
  EXPECT_FALSE(fs::exists(dir_ / ".lock.held.claim"));
}

TEST_F(Directory, WhoCannotLockSeesWhoCan) {
  RunDirectory mine(dir_);
  mine.lock();
  EXPECT_THAT(refusal(no_locks), HasSubstr("another process is training"));
}

TEST_F(Directory, AHolderOnAnotherMachineIsNotJudged) {
  fs::create_directory(dir_);
  LockHolder far = this_process();
  far.host = "far";
  far.boot = "another";
  std::ofstream(dir_ / ".lock.held") << to_text(far);
  EXPECT_THAT(refusal(no_locks), AllOf(HasSubstr("may be training"), HasSubstr(" on far since "),
                                       HasSubstr("remove " + (dir_ / ".lock.held").string())));
  std::ofstream(dir_ / ".lock.held") << "nothing that can be read";
  EXPECT_THAT(refusal(flock), HasSubstr("an unknown process"));
  EXPECT_TRUE(fs::exists(dir_ / ".lock.held")) << "it is not ours to remove";
}

class LyingLocks : public Directory {
 protected:
  void SetUp() override { fs::create_directory(dir_); }
  static std::string far_away() {
    LockHolder far = this_process();
    far.host = "far";
    far.boot = "another";
    return to_text(far);
  }
  void write(const char* file, const std::string& text) const { std::ofstream(dir_ / file) << text; }
};

TEST_F(LyingLocks, ALivingOwnerIsRefusedAtOnce) {
  const pid_t pid = holder(liar);
  EXPECT_THAT(refusal(liar),
              HasSubstr("another process is training in " + dir_.string() + ": process " + std::to_string(pid)));
  end(pid);
  EXPECT_EQ(refusal(liar), "") << "a dead one is not watched";
}

TEST_F(LyingLocks, AFarOwnerThatWritesIsRefused) {
  write(".lock", far_away());
  write("metrics.jsonl", "{}\n");
  std::atomic<bool> over = false;
  std::thread other([&] {
    while (!over) {
      std::ofstream(dir_ / "metrics.jsonl", std::ios::app) << "{}\n";
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  std::vector<std::string> said;
  RunDirectory mine(dir_, liar, 20);
  const std::string problem = message([&] { mine.lock([&](const std::string& line) { said.push_back(line); }); });
  over = true;
  other.join();
  EXPECT_THAT(problem, AllOf(HasSubstr(" on far since "), HasSubstr("metrics.jsonl grows")));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0], AllOf(HasSubstr(" on far since "), HasSubstr("watching for 20 s")));
  EXPECT_THAT(read(dir_ / ".lock"), HasSubstr("\"far\"")) << "it is still the other's";
}

TEST_F(LyingLocks, ASilentFarOwnerIsReplaced) {
  write(".lock", far_away());
  std::vector<std::string> said;
  RunDirectory mine(dir_, liar, 0.3);
  mine.lock([&](const std::string& line) { said.push_back(line); });
  ASSERT_EQ(said.size(), 2U);
  EXPECT_THAT(said[1], HasSubstr("this run takes over"));
  mine.check_owned();
}

// `launch --restarts` starts again while a rank of the attempt before still ends, on another machine.
TEST_F(Directory, ARankOfTheAttemptBeforeIsWaitedForAndNobodyElse) {
  fs::create_directory(dir_);
  for (const auto kind : std::array<DirectoryLock::FileLock, 2>{flock, no_locks}) {
    setenv(watch::kLaunchVariable, "one", 1);
    const pid_t former = holder(kind);
    std::vector<std::string> said;
    const auto attempt = [&](double seconds) {
      const DirectoryLock mine({.dir = dir_,
                                .file_lock = kind,
                                .watched = "metrics.jsonl",
                                .former_seconds = seconds,
                                .log_line = [&](const std::string& line) { said.push_back(line); }});
    };
    EXPECT_THAT(message([&] { attempt(0.3); }), HasSubstr("another process is training")) << "not for ever";
    ASSERT_EQ(said.size(), 1U);
    EXPECT_THAT(said[0], AllOf(HasSubstr("previous attempt"), HasSubstr(str_cat("process ", former, " on "))));
    std::thread ends([&] {
      usleep(300'000);
      end(former);
    });
    attempt(20);
    ends.join();
    const pid_t other = holder(kind);
    for (const char* launch : {"two", ""}) {
      *launch == 0 ? unsetenv(watch::kLaunchVariable) : setenv(watch::kLaunchVariable, launch, 1);
      said.clear();
      EXPECT_THAT(message([&] { attempt(20); }), HasSubstr("another process is training"));
      EXPECT_TRUE(said.empty()) << "at once";
    }
    end(other);
  }
}

TEST_F(LyingLocks, AnOlderOwnerThatMeetsANewOneEndsAndLeavesItsLockAlone) {
  for (const DirectoryLock::FileLock kind : {liar, no_locks}) {
    const char* file = kind == liar ? ".lock" : ".lock.held";
    {
      RunDirectory mine(dir_, kind);
      mine.lock();
      mine.check_owned();
      write(file, far_away());
      EXPECT_THAT(message([&] { mine.check_owned(); }),
                  AllOf(HasSubstr("expected to own the run directory"), HasSubstr(" on far since ")));
      write(file, "");
      EXPECT_THAT(message([&] { mine.check_owned(); }), HasSubstr("another process has taken it over"))
          << "the other has ended by now";
      write(file, far_away());
    }
    EXPECT_THAT(read(dir_ / file), HasSubstr("\"far\""));
    fs::remove(dir_ / file);
  }
}

TEST_F(Directory, ALockFileThatSomebodyRemovedIsMadeAgain) {
  for (const DirectoryLock::FileLock kind : std::initializer_list<DirectoryLock::FileLock>{flock, no_locks}) {
    RunDirectory mine(dir_, kind);
    mine.lock();
    fs::remove(dir_ / ".lock");
    fs::remove(dir_ / ".lock.held");
    mine.check_owned();
    EXPECT_THAT(refusal(kind), HasSubstr("another process is training"));
    mine.check_owned();
  }
}

TEST_F(Directory, ADirectoryThatMovesOrGoesIsNoticed) {
  const auto problem = [](const RunDirectory& run) -> std::string {
    try {
      run.check_owned();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      return error.what();
    }
    return "";
  };
  const fs::path moved = dir_.string() + "-moved";
  RunDirectory mine(dir_);
  mine.lock();
  EXPECT_EQ(problem(mine), "");
  fs::rename(dir_, moved);
  EXPECT_THAT(problem(mine), HasSubstr("was moved to '" + moved.string() + "'"));
  fs::copy(moved, dir_, fs::copy_options::recursive);
  EXPECT_THAT(problem(mine), HasSubstr("was moved to")) << "a copy in its place, lock file and all";
  fs::remove_all(dir_);
  fs::remove_all(moved);
  EXPECT_THAT(problem(mine), HasSubstr("was deleted during training"));
}

TEST_F(Directory, ItRemembersWhatItCommitted) {
  RunDirectory mine(dir_);
  mine.lock();
  EXPECT_FALSE(mine.committed());
  EXPECT_NO_THROW(mine.check_none_lost());
  mine.record_committed(30);
  mine.record_committed(40);
  EXPECT_EQ(mine.committed(), 40);
  const auto lost = [&]() -> std::string {
    try {
      mine.check_none_lost();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kDamagedData);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(lost(), AllOf(HasSubstr("checkpoint step-00000040 is missing"), HasSubstr("does not exist"),
                            HasSubstr("--restart")));
  fs::create_directory_symlink("nowhere", dir_ / "checkpoints");
  EXPECT_THAT(lost(), HasSubstr("is a dangling link"));
  for (const char* odd : {"", "{", "[]", "{\"committed_step\":\"x\"}", "{\"committed_step\":-3}", "\xff"}) {
    std::ofstream(dir_ / "committed.json") << odd;
    EXPECT_EQ(mine.committed(), -1) << odd;
    EXPECT_THAT(lost(), HasSubstr("a checkpoint is missing")) << odd;
  }
}

TEST_F(Directory, LocksAndRecordsOfAnyContentAreBounded) {
  LockHolder far = this_process();
  far.host = "far";
  far.boot = "another";
  fs::create_directory(dir_);
  ashlar::testing::expect_bounded({.inputs = {to_text(far), to_text(this_process())}, .codes = {ExitCode::kInput}},
                                  [&](const std::string& text) {
                                    std::ofstream(dir_ / ".lock") << text;
                                    std::ofstream(dir_ / "committed.json") << text;
                                    RunDirectory mine(dir_, flock, 0);
                                    mine.committed();
                                    mine.lock();
                                    mine.check_owned();
                                  });
  const TunedChoices choices{.device = "a", .sections = {{"b", {.library = "c", .choices = {{"d", "e"}}}}}};
  ashlar::testing::expect_bounded({.inputs = {to_json(choices)}, .codes = {ExitCode::kDamagedData}},
                                  [](const std::string& text) { choices_from_json(text, "choices.json"); });
  ashlar::testing::expect_bounded({.inputs = {"{\"committed_step\":40}\n"}, .codes = {ExitCode::kDamagedData}},
                                  [&](const std::string& text) {
                                    std::ofstream(dir_ / "committed.json") << text;
                                    RunDirectory(dir_).check_none_lost();
                                  });
}

TEST(Holders, LiveAndDead) {
  const LockHolder self = this_process();
  EXPECT_EQ(parse_holder(to_text(self)), self);
  EXPECT_EQ(liveness_of(self, self), Liveness::kAlive);
  LockHolder other = self;
  other.started += 1;
  EXPECT_EQ(liveness_of(other, self), Liveness::kDead) << "its number was given away again";
  other = self;
  other.boot = "before";
  EXPECT_EQ(liveness_of(other, self), Liveness::kDead) << "the machine has started anew";
  other.host = "elsewhere";
  EXPECT_EQ(liveness_of(other, self), Liveness::kUnknown);
  other = self;
  other.pid_space = "a container";
  EXPECT_EQ(liveness_of(other, self), Liveness::kUnknown);
  EXPECT_FALSE(parse_holder("{\"host\": 3}"));
}

TEST_F(Directory, SettingAsideKeepsTheLock) {
  for (const auto kind : std::initializer_list<DirectoryLock::FileLock>{flock, no_locks}) {
    fs::remove_all(dir_);
    RunDirectory mine(dir_, kind);
    mine.lock();
    EXPECT_EQ(mine.set_aside(), "") << "there was nothing";
    std::ofstream(dir_ / "config.toml") << "old";
    const fs::path aside = mine.set_aside();
    EXPECT_THAT(aside.string(), HasSubstr("run.old-"));
    EXPECT_EQ(read(aside / "config.toml"), "old");
    EXPECT_FALSE(fs::exists(aside / ".lock.held")) << "nobody holds it";
    EXPECT_FALSE(fs::exists(dir_ / "config.toml"));
    EXPECT_THAT(refusal(kind), HasSubstr("another process is training")) << "in the new one";
    RunDirectory old(aside, kind);
    EXPECT_NO_THROW(old.lock()) << "nobody holds the old one";
  }
}

// A run on another file system, reached by a link, begins anew on that one.
TEST_F(Directory, ALinkLeadsToTheNewRun) {
  const fs::path scratch = dir_.parent_path() / "scratch";
  fs::create_directory(scratch);
  std::ofstream(scratch / "config.toml") << "old";
  fs::create_directory_symlink(scratch, dir_);
  RunDirectory mine(dir_, flock);
  mine.lock();
  EXPECT_EQ(mine.set_aside().filename(), "scratch.old-1");
  EXPECT_EQ(fs::read_symlink(dir_), scratch);
  EXPECT_TRUE(fs::exists(scratch / ".lock"));
  EXPECT_FALSE(fs::exists(scratch / "config.toml"));
  EXPECT_THAT(refusal(flock), HasSubstr("another process is training"));
}

using ashlar::testing::RunFixture;
using ashlar::testing::ShellResult;

// What the run directory and its neighbours hold, with sizes; the lock is opened by all who try.
std::string everything(const RunFixture& run) {
  return ashlar::testing::run_shell("cd " + ashlar::testing::shell_quote(run.dir().string()) +
                                    "; find r* -not -name '.lock*' -printf '%p %s\\n' | sort")
      .out;
}

TEST(Restart, AStartThatFailsMovesNothing) {
  const RunFixture run;
  const std::string train = "train tiny.toml run.dir=r train.steps=3 schedule.warmup_steps=1 ";
  ASSERT_EQ(run.ashlar(train).code, 0);
  const std::string before = everything(run);
  EXPECT_THAT(before, HasSubstr("r/checkpoints/step-00000003"));
  for (const char* wrong : {"model.n_heads=5", "data.path=nowhere", "mesh.tensor=2", "run.init_from=nowhere"}) {
    const ShellResult r = run.ashlar(train + "--restart " + wrong);
    EXPECT_EQ(r.code, 2) << wrong << r.err;
    EXPECT_EQ(everything(run), before) << wrong;
  }
  if (!ashlar::testing::under_address_sanitizer()) {  // which reserves more addresses than any limit
    const ShellResult r =
        ashlar::testing::run_shell("cd " + ashlar::testing::shell_quote(run.dir().string()) + "; ulimit -v 4000000; " +
                                   ashlar::testing::shell_quote(ASHLAR_BINARY) + " " + train +
                                   "--restart model.d_model=16384 model.d_ff=65536 model.n_heads=128");
    EXPECT_EQ(r.code, 6) << r.err;
    EXPECT_EQ(everything(run), before) << "out of memory";
  }
  const ShellResult good = run.ashlar(train + "--restart");
  ASSERT_EQ(good.code, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("the earlier run is now r.old-1"));
  EXPECT_THAT(everything(run), AllOf(HasSubstr("r.old-1/checkpoints/step-00000003"), HasSubstr("r/metrics.jsonl")));
}

TEST(Restart, ADirectoryThatHoldsTheCurrentOneIsRefusedAtOnce) {
  const RunFixture run;
  const std::string options = " train.steps=3 schedule.warmup_steps=1 checkpoint.every=0 ";
  ASSERT_EQ(run.ashlar("train tiny.toml run.dir=r/" + options).code, 0);
  fs::create_directories(run.dir() / "r/deep");
  const std::string before = everything(run);
  const auto from = [&](const std::string& folder, const std::string& dir) {
    return ashlar::testing::run_shell("cd " + ashlar::testing::shell_quote((run.dir() / folder).string()) + " && " +
                                      ashlar::testing::shell_quote(ASHLAR_BINARY) + " train " +
                                      ashlar::testing::shell_quote((run.dir() / "tiny.toml").string()) +
                                      " --restart data.path=" + (run.dir() / "data").string() + options +
                                      "run.dir=" + dir);
  };
  const std::string path = fs::canonical(run.dir() / "r").string();
  for (const auto& [folder, dir, words] : std::initializer_list<std::array<std::string, 3>>{
           {"r", ".", "'.', which is the current directory; change to another directory first (cd)"},
           {"r", "deep/..", "got 'deep/..'; set run.dir = '" + path + "'"},
           {".", "r/checkpoints/..", "DIR/checkpoints/.. does, got 'r/checkpoints/..'; set run.dir = '" + path + "'"},
           {"r", path, ", which is the current directory"},
           {"r/deep", "..", "'..', which contains the current directory; change to another directory first"},
           {"r", "/", "'/', which is the root directory; choose another run.dir\n"}}) {
    const ShellResult r = from(folder, dir);
    EXPECT_EQ(r.code, 2) << dir << r.out << r.err;
    EXPECT_THAT(r.err, AllOf(HasSubstr("ashlar: [run.dir] --restart renames the run directory"), HasSubstr(words)));
    EXPECT_EQ(r.out, "") << "before anything is done";
    EXPECT_EQ(everything(run), before) << dir;
  }
  // What only looks alike.
  int n = 0;
  for (const char* dir : {"r/", "r//", "r/.", "r/../r"}) {
    const ShellResult r = run.ashlar(std::string("train tiny.toml --restart run.dir=") + dir + options);
    EXPECT_EQ(r.code, 0) << dir << r.err;
    EXPECT_TRUE(fs::exists(run.dir() / ("r.old-" + std::to_string(++n)) / "config.toml")) << dir << r.out;
    EXPECT_TRUE(fs::exists(run.dir() / "r/metrics.jsonl")) << dir;
  }
  ASSERT_EQ(from("r.old-1/deep", "../../r").code, 0) << "beside it";
  fs::create_directory(run.dir() / "empty");
  EXPECT_EQ(from("empty", ".").code, 0) << "nothing to rename";
}

TEST(Restart, BesideALiveRunIsRefusedAndMovesNothing) {
  const RunFixture run;
  const pid_t live = run.start("train tiny.toml run.dir=r train.steps=100000000 checkpoint.every=0", "log");
  for (int i = 0; i < 5000 && run.exact_metrics("r").empty(); ++i) usleep(2000);
  const ShellResult r = run.ashlar("train tiny.toml run.dir=r --restart");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.err, HasSubstr("another process is training in r: process " + std::to_string(live)));
  EXPECT_FALSE(fs::exists(run.dir() / "r.old-1"));
  EXPECT_TRUE(fs::exists(run.dir() / "r/metrics.jsonl"));
  kill(live, SIGTERM);
  EXPECT_EQ(RunFixture::wait_for(live), 76);
  EXPECT_FALSE(fs::is_empty(run.dir() / "r/checkpoints")) << "it saved where it always did";
}

}  // namespace
}  // namespace ashlar::training
