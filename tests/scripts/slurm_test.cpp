// launch/slurm/train.sbatch, with stand-ins for the launchers and for Slurm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar {
namespace {

using ::testing::HasSubstr;
using testing::run_shell;
using testing::shell_quote;
using testing::ShellResult;

const char* const kScript = ASHLAR_SOURCE_DIR "/launch/slurm/train.sbatch";

class Slurm : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(scratch_.path() / "bin");
    program("scontrol", "echo \"scontrol $*\" >>calls");
    job("exit 0");
  }
  void program(const std::string& name, const std::string& body) {
    testing::write_program(scratch_.file("bin/" + name), body);
  }
  // What the ranks do, whoever starts them.
  void job(const std::string& body) {
    program("ashlar", "echo \"ashlar $*\" >>calls\n" + body);
    program("srun", "echo \"srun $*\" >>calls\n" + body);
  }
  // As sbatch runs it; `beside` runs at the same time and knows the script as $script.
  ShellResult run(const std::string& environment = "", const std::string& beside = "") {
    return run_shell(
        "cd " + shell_quote(scratch_.path().string()) +
        "\nexport PATH=$PWD/bin:$PATH ASHLAR=ashlar SLURM_NTASKS=8 SLURM_CPUS_PER_TASK=3 SLURM_JOB_ID=42\n" +
        environment + "\nbash " + shell_quote(kScript) + " 'my run.toml' train.steps=3 &\nscript=$!\n" + beside +
        "\ncode=0; wait $script || code=$?\ncat calls\nexit $code\n");
  }
  testing::ScratchDir scratch_;
};

// Ranks that save when they are told to; `ready` and `told` show what they have come to.
const char* const kSaves = "trap 'sleep 0.2; touch told; exit 75' USR1\ntouch ready\nwhile :; do sleep 0.02; done";
const char* const kTell = "until [ -e ready ]; do sleep 0.02; done\nkill -USR1 $script";

TEST_F(Slurm, StartsTheRanksOfTheAllocation) {
  const ShellResult result = run();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "ashlar launch -np 8 train my run.toml train.steps=3\n");
  std::filesystem::remove(scratch_.file("calls"));
  EXPECT_EQ(run("export LAUNCHER=srun").out,
            "srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task=3 --cpu-bind=cores ashlar train my run.toml "
            "train.steps=3\n");
}

TEST_F(Slurm, TheSignalReachesTheRanksAndTheJobIsRequeued) {
  job(kSaves);
  for (const char* launcher : {"mpirun", "srun"}) {
    const ShellResult result = run(std::string("rm -f calls ready told; export LAUNCHER=") + launcher, kTell);
    EXPECT_EQ(result.code, 75) << result.err;
    EXPECT_TRUE(std::filesystem::exists(scratch_.file("told"))) << "the script did not wait for the ranks to save";
    EXPECT_THAT(result.out, HasSubstr("scontrol requeue 42\n"));
  }
}

TEST_F(Slurm, OtherCodesPassThroughAndEndTheJob) {
  for (const int code : {2, 5, 76, 137}) {
    job("exit " + std::to_string(code));
    const ShellResult result = run("rm -f calls");
    EXPECT_EQ(result.code, code);
    EXPECT_EQ(result.out.find("scontrol"), std::string::npos);
  }
}

TEST_F(Slurm, RanksThatFailWhileTheySaveAreNotRequeued) {
  job("trap 'sleep 0.1; kill -KILL $$' USR1\ntouch ready\nwhile :; do sleep 0.02; done");
  const ShellResult result = run("", kTell);
  EXPECT_EQ(result.code, 137);
  EXPECT_EQ(result.out.find("scontrol"), std::string::npos);
}

TEST_F(Slurm, AnUnknownLauncherIsNamed) {
  const ShellResult result = run("touch calls; export LAUNCHER=mpiexec");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "train.sbatch: LAUNCHER=mpiexec is neither mpirun nor srun; set it to one of them\n");
}

TEST_F(Slurm, ShellcheckFindsNothing) {
  if (run_shell("command -v shellcheck").code != 0) GTEST_SKIP() << "shellcheck is not installed";
  const ShellResult result = run_shell("shellcheck " + shell_quote(kScript) + " " +
                                       shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/with_ranks.sh"));
  EXPECT_EQ(result.code, 0) << result.out;
}

}  // namespace
}  // namespace ashlar
