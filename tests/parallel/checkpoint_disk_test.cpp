#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/base/log.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/save.h"
#include "tests/parallel/checkpoint_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::ashlar::testing::CheckpointModel;
using ::ashlar::testing::exit_code_of_child;
using ::ashlar::testing::save_step;
using ::ashlar::testing::ScratchDir;
using ::ashlar::testing::slurp;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Weights of 1.1 MB, moments of 2.1 MB.
constexpr CheckpointModel::Size kLargeModel{.width = 64, .vocab = 4000, .padded = 4096, .layers = 2};

/// The checkpoint of step 1 is the only thing there, and whole.
void expect_intact(const fs::path& run) {
  for (const auto& entry : fs::directory_iterator(checkpoints_dir(run))) {
    EXPECT_EQ(entry.path().filename(), directory_name(1));
  }
  Log log([](std::string_view) {});
  const auto found = newest_good(run, log);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 1);
  EXPECT_TRUE(log.warnings().empty());
}

TEST(CheckpointDisk, AFileSizeLimitIsAnErrorWithANameAndLosesNothing) {
  const ScratchDir dir;
  CheckpointModel model(DType::kFloat32, true, kLargeModel);
  model.randomize(1);
  save_step(model, dir.path(), 1);
  struct Limit {
    rlim_t bytes;
    const char* file;
  };
  // Nothing at all fits; weights do not fit; weights fit and moments do not.
  for (const Limit& limit : {Limit{1, "weights"}, Limit{600000, "weights"}, Limit{1500000, "optimizer"}}) {
    const int code = exit_code_of_child(dir.file("message"), [&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit both{.rlim_cur = limit.bytes, .rlim_max = RLIM_INFINITY};
      if (::setrlimit(RLIMIT_FSIZE, &both) != 0) throw Bug("setrlimit");
      try {
        save_step(model, dir.path(), 2);
      } catch (...) {
        const rlimit none{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
        ::setrlimit(RLIMIT_FSIZE, &none);  // the message file must fit
        throw;
      }
    });
    const std::string message = slurp(dir.file("message"));
    EXPECT_EQ(code, 6) << message;
    EXPECT_THAT(message, AllOf(HasSubstr(limit.file), HasSubstr("step-00000002"), HasSubstr("ulimit -f")));
    expect_intact(dir.path());
  }
}

TEST(CheckpointDisk, AFullDiskIsAnErrorWithANameAndLosesNothing) {
  // A file system of 5 MB of our own, in a mount namespace of the child only: one checkpoint fits, two do not.
  const ScratchDir dir;
  const fs::path disk = dir.path() / "disk";
  fs::create_directories(disk);
  constexpr int kNoMount = 99;
  const int code = exit_code_of_child(dir.file("message"), [&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=5m") != 0) {
      ::_exit(kNoMount);
    }
    CheckpointModel model(DType::kFloat32, true, kLargeModel);
    model.randomize(1);
    save_step(model, disk, 1);
    std::string text;
    try {
      save_step(model, disk, 2);
    } catch (const Error& error) {
      expect_intact(disk);
      if (::testing::Test::HasFailure()) throw Bug("the previous checkpoint is not intact");
      throw;
    }
  });
  if (code == kNoMount) GTEST_SKIP() << "needs the right to mount a tmpfs; the file size limit test covers the path";
  const std::string message = slurp(dir.file("message"));
  EXPECT_EQ(code, 6) << message;
  EXPECT_THAT(message, AllOf(HasSubstr("step-00000002"), HasSubstr("No space left"), HasSubstr("free space")));
}

TEST(CheckpointDisk, AnUnwritableRunDirectoryIsAnErrorWithAName) {
  const ScratchDir dir;
  CheckpointModel model(DType::kFloat32);
  model.randomize(1);
  testing::spit(dir.file("file"), "not a directory");
  const Error under_file = testing::error_of([&] { save_step(model, dir.path() / "file" / "run", 1); });
  EXPECT_EQ(under_file.code(), ExitCode::kInput);
  EXPECT_THAT(under_file.what(), HasSubstr("file"));
  // /proc takes no directories, not even root's.
  const Error proc = testing::error_of([&] { save_step(model, "/proc/ashlar", 1); });
  EXPECT_EQ(proc.code(), ExitCode::kInput);
  EXPECT_THAT(proc.what(), HasSubstr("/proc/ashlar"));
  if (::geteuid() != 0) {
    fs::permissions(dir.path(), fs::perms::owner_read | fs::perms::owner_exec);
    const Error denied = testing::error_of([&] { save_step(model, dir.path() / "run", 1); });
    EXPECT_EQ(denied.code(), ExitCode::kInput);
    EXPECT_THAT(denied.what(), HasSubstr("Permission denied"));
    fs::permissions(dir.path(), fs::perms::owner_all);
  }
}

}  // namespace
}  // namespace ashlar::checkpoint
