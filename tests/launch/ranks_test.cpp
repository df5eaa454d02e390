// Programs on several ranks: the harness of tests/mpi notices what goes wrong on any of them; ashlar under mpirun and
// alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::preloading;
using testing::run_shell;
using testing::shell_quote;
using testing::ShellResult;

const std::string kBinary = ASHLAR_BINARY;
const std::string kWithRanks = shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/with_ranks.sh");

class Harness : public ::testing::Test {
 protected:
  ShellResult run(const std::string& told, int ranks) {
    const std::string program = (std::filesystem::path(kBinary).parent_path() / "tests/test_mpi").string();
    return run_shell(
        "unset GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX; ASHLAR_TEST_SECONDS=2 ASHLAR_HARNESS=" + shell_quote(told) +
        " timeout 60 " + kWithRanks + " " + std::to_string(ranks) + " " + shell_quote(program) +
        " --gtest_filter='Harness.*' --gtest_color=no --gtest_output=xml:" + shell_quote(scratch_.file("report.xml")) +
        " 2>&1");
  }
  std::string report() {
    std::ifstream file(scratch_.file("report.xml"));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  testing::ScratchDir scratch_;
};

TEST_F(Harness, GoodRanksPassAndOnlyOneReports) {
  const ShellResult result = run("nothing", 3);
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_EQ(result.out.find("[       OK ]"), result.out.rfind("[       OK ]"));
  EXPECT_THAT(report(), HasSubstr("failures=\"0\""));
}

TEST_F(Harness, AFailureOnAnyRankIsAFailureInTheReport) {
  for (const std::string told : {"fail", "throw"}) {
    const ShellResult result = run(told, 3);
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.out, AllOf(HasSubstr("[  FAILED  ] Harness.BehavesAsTold"), HasSubstr("on rank 2:"),
                                  HasSubstr("told to " + told)));
    EXPECT_THAT(report(), AllOf(HasSubstr("failures=\"1\""), HasSubstr("told to " + told)));
  }
}

TEST_F(Harness, ADeadRankEndsTheRun) {
  const ShellResult result = run("die", 2);
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("[ RUN      ] Harness.BehavesAsTold"), Not(HasSubstr("PASSED"))));
}

TEST_F(Harness, AHangIsCutAndEachRankSaysWhereItIs) {
  const ShellResult result = run("wait alone", 2);
  EXPECT_NE(result.code, 0);
  EXPECT_NE(result.code, 124) << "it ended by itself";
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("rank 0: Harness.BehavesAsTold did not end within 2 s; last operation: host gather"),
                    HasSubstr("rank 1: Harness.BehavesAsTold did not end within 2 s; last operation: barrier on "
                              "world")));
}

TEST(BenchComm, OneRankReports) {
  const std::string words = " bench comm --largest 16384 --seconds 0.001 --json";
  for (const int ranks : {1, 3}) {
    const ShellResult result =
        run_shell("timeout 60 " + kWithRanks + " " + std::to_string(ranks) + " " + shell_quote(kBinary) + words);
    ASSERT_EQ(result.code, 0) << result.err;
    const auto json = nlohmann::json::parse(result.out);
    EXPECT_EQ(json["ranks"], ranks);
    EXPECT_EQ(json["local_ranks"], ranks);
    ASSERT_EQ(json["rows"].size(), 10u) << "five operations of two sizes";
    for (const auto& row : json["rows"]) EXPECT_GT(row["gb_per_sec"], 0.0) << row.dump();
  }
}

TEST(BenchComm, MeasuresBuffersOfADevice) {
  const std::string words = " bench comm --device cuda --largest 4096 --seconds 0.001 --json";
  const ShellResult result = run_shell("env ASHLAR_NCCL= " + preloading(ASHLAR_NO_NVIDIA_LIBRARY) + " timeout 60 " +
                                       kWithRanks + " 3 " + shell_quote(ASHLAR_ON_EMULATOR) + words);
  ASSERT_EQ(result.code, 0) << result.err;
  // One line before the result says what is missing.
  EXPECT_THAT(result.out, HasSubstr("Ranks exchange through host memory"));
  const auto json = nlohmann::json::parse(result.out.substr(result.out.find('{')));
  EXPECT_EQ(json["device"], "cuda");
  ASSERT_EQ(json["rows"].size(), 5u);
  for (const auto& [operation, share] : std::map<std::string, double>{
           {"all_reduce", 4.0 / 3}, {"reduce_scatter", 2.0 / 3}, {"all_gather", 2.0 / 3}, {"send_recv", 1}}) {
    const auto row = std::find_if(json["rows"].begin(), json["rows"].end(),
                                  [&name = operation](const auto& r) { return r["operation"] == name; });
    ASSERT_NE(row, json["rows"].end()) << operation;
    const double rate = (*row)["gb_per_sec"], bus = (*row)["bus_gb_per_sec"];
    EXPECT_GT(rate, 0.0);
    EXPECT_NEAR(bus, share * rate, 1e-9 * rate) << operation;
  }
}

TEST(BenchComm, BadOptionsAreNamed) {
  const ShellResult result = run_shell(shell_quote(kBinary) + " bench comm --dtype int32");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "ashlar: [bench comm] --dtype expects fp32, bf16 or fp64, got int32\n");
}

// What every command of several ranks has from `train`: its share of the cores, and a watch that names the dead.
TEST(Commands, RanksShareTheCoresAndTheDeadAreNamedSlow) {
  const testing::RunFixture run;
  // Large enough for threads to be made.
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=2 schedule.warmup_steps=1 vocab.pad_to=2 model.d_model=256 "
                       "model.n_heads=4 model.d_ff=1024")
                .code,
            0);
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  const auto share = std::max<int64_t>(1, cores / 2);
  // The second rank, once it has computed for longer than any start takes.
  const auto busy_rank = [&] {
    for (int i = 0; i < 1200; ++i, usleep(50'000)) {
      const pid_t pid = run.find_rank_process(1).value_or(0);
      std::ifstream file(str_cat("/proc/", pid, "/stat"));
      std::string word;
      for (int field = 1; field < 14 && file >> word; ++field) {
      }
      int64_t user = 0, system = 0;
      if (file >> user >> system && user + system > 1.2 * static_cast<double>(sysconf(_SC_CLK_TCK))) return pid;
    }
    throw std::runtime_error("the second rank never got to work: " + run.read("log"));
  };
  // How many threads it has in a long generation.
  const auto threads = [&](const std::string& more) {
    const pid_t pid =
        run.start("launch -np 2 generate run --ids 1,2 --tokens 1000000 --tensor 2 --no-cache" + more, "log");
    const pid_t second = busy_rank();
    const ShellResult r = run_shell(str_cat("grep Threads /proc/", second, "/status"));
    kill(second, SIGKILL);
    EXPECT_EQ(testing::RunFixture::wait_for(pid), 5);
    return r.out;
  };
  const std::string own = threads("");
  EXPECT_EQ(own, threads(str_cat(" --threads ", share)));
  EXPECT_NE(own, threads(str_cat(" --threads ", share + 1))) << "else nothing was compared";
  EXPECT_EQ(run.ashlar("launch -np 2 eval run --sequences 4").code, 0);
  const ShellResult step = run.ashlar("launch -np 2 bench step tiny.toml mesh.data=2 --steps 1 --json");
  ASSERT_EQ(step.code, 0) << step.err;
  EXPECT_EQ(nlohmann::json::parse(step.out).at("threads"), share);

  const pid_t pid = run.start("launch -np 2 bench step tiny.toml mesh.data=2 --steps 100000", "log");
  kill(busy_rank(), SIGKILL);
  EXPECT_EQ(testing::RunFixture::wait_for(pid), 5);
  const std::string died = "ashlar: \\[rank 1 of 2 on [^ ]+\\] died", again = ".* here: run the command again\n";
  EXPECT_THAT(run.read("log"), ::testing::ContainsRegex(died + ", last operation" + again)) << "no steps are told of";
  EXPECT_THAT(run.read("log"),
              ::testing::ContainsRegex(died + " while (loading a checkpoint|generating, token [0-9]+), last" + again));
}

// A setting that MPI cannot start with: harmless to a process that does not start it.
TEST(WithoutMpirun, MpiIsNeverStarted) {
  const std::string words = " bench comm --largest 4096 --seconds 0.001";
  const std::string broken = "export OMPI_MCA_pml=none_such\n";
  const ShellResult alone = run_shell(broken + shell_quote(kBinary) + words);
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr("1 ranks"));
  const ShellResult started =
      run_shell(broken + "timeout 60 mpirun --allow-run-as-root -np 1 " + shell_quote(kBinary) + words);
  EXPECT_NE(started.code, 0) << "else the line above proves nothing";
}

// The micro-batch of a configuration without train.micro_batch follows from its global batch and mesh. The check must
// give every layout the same one.
TEST(CheckLayoutCommand, TakesTheSameMicroBatchesOnEveryLayout) {
  const testing::RunFixture run;
  const testing::ShellResult r = run.ashlar(
      "launch -np 2 check-layout tiny.toml train.micro_batch=default model.n_layers=2 --meshes data=2 --meshes "
      "pipeline=2");
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_THAT(r.out, HasSubstr("2 of 2 layouts equal one rank"));
}

}  // namespace
}  // namespace ashlar
