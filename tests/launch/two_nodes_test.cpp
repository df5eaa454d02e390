// A training on two machines, told apart by namespaces (two_nodes.sh): the same losses as one rank, stopped by a
// signal, one machine lost, a run directory that only one of them sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// For the scripts: `train WORDS` and `started N`, which waits for the Nth step; all with the run directory r.
const char* const kTools = R"sh(
train() {
  local where=$1
  shift
  exec "$ASHLAR" launch $where train tiny.toml run.dir=r run.threads=1 vocab.pad_to=2 train.micro_batch=1 "$@"
}
steps() { grep -cs grad_norm r/metrics.jsonl || true; }
started() {
  for ((i = 0; i < 2000; ++i)); do
    [ "0$(steps)" -lt "$1" ] || return 0
    sleep 0.02
  done
}
)sh";

class TwoNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    const ShellResult tried = on_a("true");
    if (tried.code == 77) GTEST_SKIP() << tried.err;
    ASSERT_EQ(tried.code, 0) << tried.err;
    own_network_ = run_.read("nodes/network") == "own\n";
    std::cout << (own_network_ ? "each node has a network of its own\n" : "the nodes share the machine's network\n");
  }

  // Runs a script on node a. All of it ends with this process, however that does.
  ShellResult on_a(const std::string& script) const {
    run_.write("script", kTools + script);
    const std::string command = "cd " + shell_quote(run_.dir().string()) + " && ASHLAR=" + shell_quote(ASHLAR_BINARY) +
                                " exec " + shell_quote(ASHLAR_SOURCE_DIR "/tests/launch/two_nodes.sh") +
                                " $PWD/nodes bash script </dev/null >out 2>err";
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    if (pid < 0) throw std::runtime_error("fork failed");
    const int code = RunFixture::wait_for(pid);
    return {.code = code, .out = run_.read("out"), .err = run_.read("err")};
  }

  static std::string own_lines(const std::string& text) {
    std::string lines;
    std::istringstream all(text);
    for (std::string line; std::getline(all, line);)
      if (line.starts_with("ashlar: ")) lines += line + "\n";
    return lines;
  }

  RunFixture run_;
  bool own_network_ = false;
};

TEST_F(TwoNodes, TrainTheModelOfOneRank) {
  const std::string steps = "train.steps=50 train.eval_every=25 checkpoint.every=0";
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=one train.micro_batch=1 " + steps).code, 0);
  ShellResult r =
      on_a("export OMPI_MCA_btl=self,tcp; train '-np 4 --host a:2,b:2' mesh.tensor=2 mesh.pipeline=2 " + steps);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.err, Not(HasSubstr("vader")));
  run_.expect_same_metrics("r", "one", 5e-5);
  EXPECT_THAT(r.out, AllOf(HasSubstr("layout: 4 ranks on 2 hosts"), ContainsRegex("stage 0 .* rank 0 a +rank 1 a\n"),
                           ContainsRegex("stage 1 .* rank 2 b +rank 3 b\n")));

  // From a file, and with ranks that have other neighbours: to the bit.
  run_.write("hosts", "a slots=1\nb slots=3\n");
  const std::vector<std::string> before = run_.exact_metrics("r");
  r = on_a("rm -r r; train '-np 4 --hostfile hosts' mesh.tensor=2 mesh.pipeline=2 " + steps);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(run_.exact_metrics("r"), before);
  EXPECT_THAT(r.out, AllOf(ContainsRegex("stage 0 .* rank 0 a +rank 1 b\n"), HasSubstr(" rank 2 b  rank 3 b\n")));
}

// The stopped rank is seen by the other node, which compares all.
TEST_F(TwoNodes, StopAtASignalToMpirunAndNameWhoHangs) {
  const ShellResult r = on_a(R"(
    words='mesh.tensor=2 mesh.pipeline=2 checkpoint.every=0'
    (train '-np 4 --host a:2,b:2' $words train.steps=100000) &
    started 5
    kill -USR1 $!
    wait $!
    echo "code $?"
    steps=$(steps)
    echo "steps $steps"
    export OMPI_MCA_odls_base_sigkill_timeout=0  # a stopped one does not answer SIGTERM: 6 s of waiting
    (train '-np 4 --host a:2,b:2' $words run.hang_after=2 train.steps=100000) &
    started $((steps + 2))
    for p in $(pgrep -x ashlar); do
      if grep -qz '^OMPI_COMM_WORLD_RANK=3$' /proc/$p/environ; then kill -STOP $p; fi
    done
    wait $!)");
  EXPECT_EQ(r.code, 5) << r.err;
  EXPECT_THAT(r.out, HasSubstr("\ncode 75\n")) << r.err;
  const size_t steps = std::strtoul(r.out.c_str() + r.out.find("\nsteps ") + 7, nullptr, 10);
  EXPECT_THAT(r.out, AllOf(HasSubstr(str_cat("SIGUSR1: stopped after step ", steps, " of 100000")),
                           HasSubstr(str_cat("at step ", steps, "\n"))));
  const std::string said = own_lines(r.err);
  for (const char* rank : {"0 of 4 on a", "1 of 4 on a", "2 of 4 on b", "3 of 4 on b"})
    EXPECT_THAT(said, HasSubstr(str_cat("ashlar: [rank ", rank, "] step ")));
  EXPECT_THAT(said, ContainsRegex("ashlar: \\[rank 0 of 4 on a\\] [^\n]*\n(ashlar:  [^\n]*\n)*"
                                  "ashlar: \\[rank 1 of 4 on a\\] [^\n]*\n(ashlar:  [^\n]*\n)*"
                                  "ashlar: hang: rank 3 of 4 on b is stopped \\(state T\\) in [^\n]*\n"
                                  "ashlar: hang: the job ends here"))
      << "node a says who on node b it is";
}

// A crashed node closes its connections; one without power says nothing, and its ssh hangs. The others then hang, too:
// what is said is the reason.
TEST_F(TwoNodes, ALostNodeIsNamedAndTheOtherGoesOnAlone) {
  for (const std::string loss : {"", "export NODE_SILENT=1; cut='ip link set cable-a down'"}) {
    if (!loss.empty() && !own_network_) continue;
    SCOPED_TRACE(loss.empty() ? "crash" : "power");
    const ShellResult r = on_a(loss + R"(
    (train '-np 4 --host a:2,b:2' mesh.tensor=2 mesh.pipeline=2 checkpoint.every=2 run.hang_after=2 train.steps=100000) 2>&1 &
    started 5
    sleep 0.7  # until they have seen each other beat
    before=$(date +%s%N)
    $cut
    kill -KILL $NODE_B
    wait $!
    echo "code $?"
    while pgrep -x ashlar || pgrep -x orted; do sleep 0.02; done >/dev/null
    echo "ms $((($(date +%s%N) - before) / 1000000))."
    train '-np 2 --host a:2' mesh.pipeline=2 train.steps=$(($(steps) + 2)))");
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("\ncode 5\n")) << "not 205, which mpirun makes of it";
    const size_t ms = r.out.find("\nms ");
    ASSERT_NE(ms, std::string::npos) << r.out << r.err;
    EXPECT_LT(std::atoi(r.out.c_str() + ms + 4), 10'000);
    const std::string said = own_lines(r.out);
    EXPECT_THAT(said, ContainsRegex(
                          "^ashlar: \\[rank 2 of 4 on b\\] fell silent \\(its machine or the network failed\\) at step "
                          "[0-9]+, last operation .*; 1 more lost; the job ends here"))
        << r.out;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_THAT(r.out, AllOf(HasSubstr("layout: 2 ranks on 1 host"), HasSubstr("continuing from r/checkpoints/step-")));
    EXPECT_GT(run_.metric("r", "loss").size(), 5u);
    std::filesystem::remove_all(run_.dir() / "r");
  }
}

TEST_F(TwoNodes, ARunDirectoryThatOneDoesNotSeeIsNamed) {
  const ShellResult r = on_a("train '-np 4 --host a:2,b:2' mesh.data=4 run.dir=nodes/private/r");
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(own_lines(r.err), "ashlar: [run] rank 2 of 4 on b: this rank cannot see the run directory " +
                                  (run_.dir() / "nodes/private/r").string() +
                                  ", which rank 0 has opened; set run.dir to a directory that all nodes "
                                  "share\n");
}

}  // namespace
}  // namespace ashlar::testing
