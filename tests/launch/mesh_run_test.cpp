// A training under mpirun is the training of one rank: same losses on any mesh, across restarts on other meshes; errors
// of any rank are one line; signals to mpirun save.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "core/base/strings.h"
#include "parallel/checkpoint/find.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MeshRun : public ::testing::Test {
 protected:
  ShellResult train(int ranks, const std::string& words) const {
    return run_.ashlar(str_cat("launch -np ", ranks, " train tiny.toml run.threads=1 vocab.pad_to=2 ", words));
  }
  RunFixture run_;
};

// Dropout is on: its masks do not depend on who computes them.
TEST_F(MeshRun, EveryMeshTrainsTheSameModel) {
  const std::string steps = "train.steps=50 train.micro_batch=1 train.eval_every=25 checkpoint.every=0 ";
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=one " + steps).code, 0);
  const std::pair<int, const char*> meshes[] = {
      {2, "mesh.tensor=2 mesh.sequence_parallel=true log.stats_every=25"},
      {4, "mesh.tensor=2 mesh.pipeline=2 mesh.schedule=zb-h1"},
      {4, "mesh.data=2 mesh.pipeline=2 mesh.schedule=interleaved train.recompute=block"},
      {4, "mesh.data=4"},
  };
  for (const auto& [ranks, mesh] : meshes) {
    SCOPED_TRACE(mesh);
    const std::string dir = str_cat("mesh-", &mesh - &meshes[0].second);
    const ShellResult r = train(ranks, str_cat("run.dir=", dir, " ", steps, mesh));
    ASSERT_EQ(r.code, 0) << r.err;
    run_.expect_same_metrics(dir, "one", 5e-5);
    EXPECT_THAT(r.out, HasSubstr(str_cat("layout: ", ranks, " ranks on 1 host")));
    EXPECT_EQ(r.out.find("step 50/50"), r.out.rfind("step 50/50")) << "one rank speaks";
  }
}

TEST_F(MeshRun, Bf16TrainsTheSameModel) {
  const std::string steps = "run.dtype=bf16 train.steps=50 train.micro_batch=1 train.eval_every=25 checkpoint.every=0 ";
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=one " + steps).code, 0);
  const ShellResult r = train(4, "run.dir=four mesh.tensor=2 mesh.data=2 mesh.sequence_parallel=true " + steps);
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<double> got = run_.metric("four", "loss"), expected = run_.metric("one", "loss");
  ASSERT_EQ(got.size(), 50u);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 3e-3 * expected[i]) << "step " << i + 1;
}

TEST_F(MeshRun, GoesOnOnAnotherMesh) {
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=one train.steps=40").code, 0);
  const std::string common = "run.dir=moved train.micro_batch=1 schedule.decay_steps=35 ";
  const std::pair<int, std::string> legs[] = {{4, "mesh.pipeline=2 mesh.tensor=2 train.steps=10"},
                                              {2, "mesh.data=2 train.steps=20"},
                                              {1, "train.steps=30"},
                                              {4, "mesh.data=2 mesh.tensor=2 train.steps=40"}};
  for (const auto& [ranks, words] : legs) {
    const ShellResult r = train(ranks, common + words);
    ASSERT_EQ(r.code, 0) << words << ": " << r.err;
  }
  const std::vector<double> got = run_.metric("moved", "loss"), expected = run_.metric("one", "loss");
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-5 * expected[i]) << "step " << i + 1;
}

TEST_F(MeshRun, EvaluatesAndWritesAsOneRankDoes) {
  ASSERT_EQ(train(4, "run.dir=r train.steps=10 mesh.tensor=2 mesh.pipeline=2").code, 0);
  const auto lines = [&](const std::string& out, const std::string& begin) {
    const size_t at = out.find(begin);
    return at == std::string::npos ? std::string() : out.substr(at, out.find(" over", at) - at);
  };
  const ShellResult one = run_.ashlar("eval r --threads 1 --sequences 7");
  ASSERT_EQ(one.code, 0) << one.err;
  for (const char* words : {"", "--tensor 1 --pipeline 1", "--tensor 1 --pipeline 2"}) {
    const ShellResult r = run_.ashlar(str_cat("launch -np 4 eval r --threads 1 --sequences 7 ", words));
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(lines(r.out, "val_loss"), lines(one.out, "val_loss")) << words;
  }
  const std::string generate = "generate r --threads 1 --prompt 'the wall ' --tokens 40 --seed 3 ";
  const std::string text = run_.ashlar(generate).out;
  EXPECT_GT(text.size(), 20u);
  for (const char* words : {"-np 4 ", "-np 2 ", "-np 2 --no-cache --pipeline 2 --tensor 1"}) {
    const std::string np = std::string(words).substr(0, 6), rest = std::string(words).substr(6);
    EXPECT_EQ(run_.ashlar("launch " + np + generate + rest).out, text) << words;
  }
}

TEST_F(MeshRun, FilesAreWrittenOnce) {
  ASSERT_EQ(train(2, "run.dir=r train.steps=6 mesh.pipeline=2").code, 0);
  const ShellResult exported = run_.ashlar("launch -np 3 export r hf --dtype fp32");
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(exported.out.find("exported"), exported.out.rfind("exported"));
  ASSERT_EQ(run_.ashlar("export r hf-one --dtype fp32").code, 0);
  EXPECT_EQ(run_.read("hf/model.safetensors"), run_.read("hf-one/model.safetensors"));
  const ShellResult imported = run_.ashlar("launch -np 3 import hf back --no-tokenizer");
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_EQ(run_.ashlar("eval back --data data --sequence-length 16 --threads 1").code, 0);
}

TEST_F(MeshRun, AnErrorOfAllRanksIsOneLine) {
  const auto ours = [](const std::string& err) {
    std::string lines;
    std::istringstream all(err);
    for (std::string line; std::getline(all, line);)
      if (line.starts_with("ashlar: ") || line.starts_with("[config]")) lines += line + "\n";
    return lines;
  };
  ShellResult r = train(4, "mesh.tensor=4 mesh.pipeline=1");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(ours(r.err), HasSubstr("ashlar: [config] mesh.tensor = 4: expected a divisor of model.n_heads = 2"));
  EXPECT_EQ(ours(r.err).find("n_heads = 2"), ours(r.err).rfind("n_heads = 2")) << r.err;
  r = run_.ashlar("launch -np 4 eval missing");
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(ours(r.err).find("missing"), ours(r.err).rfind("missing")) << ours(r.err);
  r = train(4, "run.dir=r train.steps=3 mesh.pipeline=3");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(ours(r.err), HasSubstr("mesh.pipeline = 3: expected a divisor of the number of ranks, 4"));
}

TEST_F(MeshRun, ARankWithAnotherConfigurationIsNamed) {
  const std::string script =
      "cd " + shell_quote(run_.dir().string()) + " && " +
      shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/with_ranks.sh") + " 3 bash -c '" +
      "[ ${OMPI_COMM_WORLD_RANK:-0} = 2 ] && more=optimizer.lr=0.5; exec \"$0\" train tiny.toml train.global_batch=6 "
      "train.micro_batch=2 $more' " +
      shell_quote(ASHLAR_BINARY);
  const ShellResult r = run_shell(script);
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.err, HasSubstr("ashlar: [config] rank 2 has a configuration of hash"));
  EXPECT_EQ(r.err.find("ashlar: "), r.err.rfind("ashlar: ")) << r.err;
}

TEST_F(MeshRun, SignalsToLaunchSaveAndKeepTheirCode) {
  const std::string words = "train tiny.toml run.dir=r run.threads=1 mesh.data=2 checkpoint.every=0 train.steps=";
  const pid_t pid = run_.start("launch -np 2 " + words + "100000", "log");
  for (int i = 0; i < 6000 && run_.metric("r", "loss").size() < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(pid, SIGUSR1);
  EXPECT_EQ(RunFixture::wait_for(pid), 75) << run_.read("log");
  const size_t done = run_.metric("r", "loss").size();
  EXPECT_THAT(run_.read("log"), HasSubstr(str_cat("SIGUSR1: stopped after step ", done)));
  const pid_t again = run_.start("launch -np 2 " + words + "100000", "again");
  for (int i = 0; i < 6000 && run_.metric("r", "loss").size() < done + 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(again, SIGTERM);
  EXPECT_EQ(RunFixture::wait_for(again), 76) << run_.read("again");
  EXPECT_THAT(run_.read("again"), HasSubstr(str_cat("at step ", done)));
  const size_t now = run_.metric("r", "loss").size();
  EXPECT_THAT(run_.read("again"), HasSubstr(str_cat("stopped after step ", now))) << "and saved";
  EXPECT_TRUE(
      std::filesystem::exists(run_.dir() / "r/checkpoints" / checkpoint::directory_name(static_cast<int64_t>(now))));
}

// Kills rank 3 of the job in `dir`; the seconds until mpirun, which is `pid`, has gone, and not with code 0.
double kill_rank_3(const std::filesystem::path& dir, pid_t pid) {
  const auto began = std::chrono::steady_clock::now();
  run_shell("cd " + shell_quote(dir.string()) +
            " && for p in /proc/[0-9]*; do [ \"$(readlink $p/cwd)\" = \"$PWD\" ] && tr '\\0' '\\n' <$p/environ | "
            "grep -qx OMPI_COMM_WORLD_RANK=3 && kill -KILL ${p#/proc/}; done 2>/dev/null");
  EXPECT_NE(RunFixture::wait_for(pid), 0);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

constexpr const char* kOnFourRanks =
    "launch -np 4 train tiny.toml run.dir=r run.threads=1 vocab.pad_to=2 mesh.tensor=2 mesh.pipeline=2 ";

TEST_F(MeshRun, AKilledRankIsNamedAndTakesTheOthersDown) {
  const pid_t pid = run_.start(str_cat(kOnFourRanks, "checkpoint.every=2 train.steps=100000"), "log");
  for (int i = 0; i < 6000 && run_.metric("r", "loss").size() < 5; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LT(kill_rank_3(run_.dir(), pid), 10);
  EXPECT_THAT(run_.read("log"),
              ::testing::ContainsRegex("ashlar: \\[rank 3 of 4 on [^]]+\\] died at step [0-9]+, last"));
  const size_t rows = run_.metric("r", "loss").size();
  const ShellResult r = run_.ashlar(str_cat("train tiny.toml run.dir=r train.steps=", rows + 2));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("continuing from"));
}

TEST_F(MeshRun, ARankThatIsKilledDuringTheStartIsNamed) {
  const pid_t pid =
      run_.start(str_cat(kOnFourRanks,
                         "model.d_model=1024 model.n_heads=16 model.n_kv_heads=16 model.n_layers=8 train.steps=100000"),
                 "log");
  for (int i = 0; i < 6000 && run_.read("log").find("layout: ") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // every rank has seen every other
  EXPECT_LT(kill_rank_3(run_.dir(), pid), 10);
  EXPECT_THAT(run_.read("log"), ::testing::ContainsRegex(
                                    "ashlar: \\[rank 3 of 4 on [^]]+\\] died (before the first step|at step 1), last"));
}

}  // namespace
}  // namespace ashlar::testing
