// `ashlar launch`: the mpirun line for each MPI, and the real program with stand-ins for mpirun.
#include "launch/commands/mpirun_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "launch/commands/hostfile.h"
#include "launch/commands/mpirun_filter.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_shell;
using testing::shell_quote;
using testing::ShellResult;
using ::testing::StartsWith;

const char* const kOpenMpi4 = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n";
const std::string kKeepalive4 =
    "--mca oob_tcp_keepalive_time 1 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 "
    "--mca odls_base_sigkill_timeout 2 ";
const char* const kOpenMpi5 = "mpirun (Open MPI) 5.0.7\n";

LocalMpirun here(const char* version) { return {.path = "/bin/mpirun", .version = version, .cores = 4}; }
RequestedRanks ranks(int64_t n) { return {.ranks = n, .command = {"/ashlar", "train"}}; }
std::string line(const RequestedRanks& wanted, const LocalMpirun& at) { return shell_line(mpirun_line(wanted, at)); }

TEST(MpirunLine, OneMachine) {
  EXPECT_EQ(line(ranks(4), here(kOpenMpi4)),
            "/bin/mpirun --bind-to none --mca plm isolated --mca pml ob1 --mca btl self,vader,tcp "
            "--mca orte_abort_on_non_zero_status 1 -np 4 /ashlar train");
  EXPECT_EQ(line(ranks(4), here(kOpenMpi5)),
            "/bin/mpirun --bind-to none --mca pml ob1 --mca btl self,sm,tcp "
            "--prtemca prte_abort_on_non_zero_status 1 -np 4 /ashlar train");
  EXPECT_EQ(line(ranks(4), here("HYDRA build details:\n    Version: 4.0.2\n")), "/bin/mpirun -n 4 /ashlar train");
}

TEST(MpirunLine, RootAndMoreRanksThanCoresAreSaid) {
  LocalMpirun root = here(kOpenMpi4);
  root.root = true;
  EXPECT_THAT(line(ranks(4), root), StartsWith("/bin/mpirun --allow-run-as-root --bind-to none"));
  EXPECT_THAT(line(ranks(5), here(kOpenMpi4)), StartsWith("/bin/mpirun --oversubscribe --bind-to none"));
  EXPECT_THAT(line(ranks(5), here(kOpenMpi5)), StartsWith("/bin/mpirun --map-by :OVERSUBSCRIBE --bind-to none"));
}

TEST(MpirunLine, HostsShareTheRanksAndGetTheEnvironment) {
  LocalMpirun at = here(kOpenMpi4);
  at.environment = {"ASHLAR_MAX_ISA", "HOME", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PATH"};
  RequestedRanks wanted = ranks(8);
  wanted.hosts = "a,b";
  EXPECT_EQ(line(wanted, at),
            "/bin/mpirun --bind-to none --mca btl self,vader,tcp --mca orte_abort_on_non_zero_status 1 " + kKeepalive4 +
                "--host a:4,b:4 "
                "-x ASHLAR_MAX_ISA -x LD_LIBRARY_PATH -x OMP_NUM_THREADS -np 8 /ashlar train");
  wanted.hosts = "a:2,b,c";
  EXPECT_THAT(line(wanted, at), HasSubstr("--host a:2,b:3,c:3 "));
  wanted.hosts = "a:2,b:2";
  EXPECT_THAT(line(wanted, at), StartsWith("/bin/mpirun --oversubscribe "));
  EXPECT_EQ(line(wanted, here("Intel(R) MPI Library")), "/bin/mpirun -hosts a:2,b:2 -n 8 /ashlar train");
}

TEST(MpirunLine, HostfilesAreCountedAndPassedOn) {
  RequestedRanks wanted = ranks(8);
  wanted.hostfile = "hosts";
  wanted.hostfile_text = "a slots=4\nb slots=4\n";
  EXPECT_THAT(line(wanted, here(kOpenMpi4)), HasSubstr("--hostfile hosts -np 8"));
  EXPECT_THAT(line(wanted, here(kOpenMpi4)), Not(HasSubstr("--oversubscribe")));
  wanted.hostfile_text = "a slots=4\n# b slots=4\n\n  c max_slots=9 slots=3 # d\n";
  EXPECT_THAT(line(wanted, here(kOpenMpi4)), HasSubstr("--oversubscribe"));
  EXPECT_EQ(hostfile_slots(wanted.hostfile_text, 16), 7);
  EXPECT_EQ(hostfile_slots("a\nb slots=3", 16), 19) << "a host without a number has as many cores as this one";
}

// Measured with `mpirun --display-allocation` of 4.1.4.
TEST(Hostfile, IsCountedAsOpenMpiDoes) {
  EXPECT_EQ(hostfile_slots("localhost\nlocalhost\n", 16), 2);
  EXPECT_EQ(hostfile_slots("localhost\n", 16), 16);
  EXPECT_EQ(hostfile_slots("localhost slots=2\nlocalhost\n", 16), 3);
  EXPECT_EQ(hostfile_slots("localhost slots=2\nvm\n", 16, "h", "vm"), 3) << "this machine by its name";
  EXPECT_EQ(hostfile_slots("127.0.0.1\nlocalhost\n", 16), 2);
  EXPECT_EQ(hostfile_slots("a slots = 2\n\tb\tcpu=3 // c\nroot@c count=4 username=x\n", 16), 9);
  EXPECT_EQ(hostfile_slots("a max-slots=4\nb slots=2 max_slots=9\n", 16), 6);
  EXPECT_EQ(hostfile_slots("fd00::1 slots=2", 16), 2);
}

TEST(Hostfile, WhatMpirunWouldNotReadIsRefusedWithItsLine) {
  const auto said = [](const std::string& text) {
    try {
      return str_cat(hostfile_slots(text, 16, "h"));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      return std::string(error.what());
    }
  };
  EXPECT_THAT(said("a slots=2\nb slots=2\r\n"), HasSubstr("--hostfile 'h', line 2: a carriage return"));
  EXPECT_THAT(said("\xef\xbb\xbf"
                   "a slots=2\n"),
              HasSubstr("line 1: a byte order mark"));
  EXPECT_THAT(said("# all\na:4\n"), HasSubstr("line 2: expected the name of a machine, got 'a:4'; write a slots=4"));
  EXPECT_THAT(said("a slots=2\n\na slots=3\n"), HasSubstr("line 3: slots given twice for one machine"));
  EXPECT_THAT(said("a slots=x\n"), HasSubstr("line 1, slots: expected a whole number from 0"));
  EXPECT_THAT(said("a slots=\n"), HasSubstr("line 1, slots: expected a whole number"));
  EXPECT_THAT(said("a slots=99999999999\n"), HasSubstr("line 1, slots: expected a whole number"));
  for (const char* bad : {"a b\n", "a 4\n", "a slots\n", "a foo=2\n", "a,b\n", "^a\n"})
    EXPECT_THAT(said(bad), HasSubstr("line 1: expected ")) << bad;
  EXPECT_THAT(said("# nothing\n"), HasSubstr("contains no machine"));
}

TEST(MpirunLine, ABatchSystemKnowsTheMachines) {
  LocalMpirun at = here(kOpenMpi4);
  at.allocated = true;
  EXPECT_EQ(line(ranks(64), at),
            "/bin/mpirun --bind-to none --mca btl self,vader,tcp --mca orte_abort_on_non_zero_status 1 " + kKeepalive4 +
                "-np 64 /ashlar train");
}

TEST(MpirunLine, WhatTheEnvironmentSetsStays) {
  LocalMpirun at = here(kOpenMpi4);
  at.environment = {"OMPI_MCA_btl", "OMPI_MCA_oob_tcp_keepalive_time", "OMPI_MCA_plm"};
  EXPECT_EQ(line(ranks(4), at),
            "/bin/mpirun --bind-to none --mca pml ob1 --mca orte_abort_on_non_zero_status 1 -np 4 /ashlar train");
  at.allocated = true;
  EXPECT_EQ(line(ranks(4), at),
            "/bin/mpirun --bind-to none --mca orte_abort_on_non_zero_status 1 --mca oob_tcp_keepalive_intvl 1 "
            "--mca oob_tcp_keepalive_probes 3 --mca odls_base_sigkill_timeout 2 -np 4 /ashlar train");
}

TEST(MpirunLine, WordsAreQuotedForAShell) {
  EXPECT_EQ(shell_line({"a", "", "b c", "it's", "run.dir=x/1", "$HOME"}), "a '' 'b c' 'it'\\''s' run.dir=x/1 '$HOME'");
  const std::string acts = "a\x1b[2J'\\\n";
  EXPECT_EQ(run_shell("printf %s " + shell_line({acts})).out, acts) << "a shell reads it back";
  EXPECT_EQ(shell_line({acts}), R"($'a\x1b[2J\'\\\x0a')");
}

// The real program; mpirun is a stand-in that says how it was called.
class Launch : public ::testing::Test {
 protected:
  Launch() {
    fs::create_directory(scratch_.path() / "bin");
    mpirun("echo mpirun \"$@\"");
  }
  void mpirun(const std::string& body) {
    testing::write_program(scratch_.file("bin/mpirun"),
                           "[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && exit\n" + body);
  }
  ShellResult run(const std::string& words, const std::string& before = "") {
    return run_shell("cd " + shell_quote(scratch_.path().string()) + "\nPATH=$PWD/bin:$PATH\n" + before + "\n" +
                     shell_quote(ASHLAR_BINARY) + " launch " + words);
  }
  testing::ScratchDir scratch_;
};

TEST_F(Launch, PrintsTheLineAndRunsIt) {
  const ShellResult dry = run("-np 3 --dry-run train 'my run.toml' --restart train.steps=3");
  EXPECT_EQ(dry.code, 0) << dry.err;
  const std::string tail = " -np 3 " ASHLAR_BINARY " train 'my run.toml' --restart train.steps=3\n";
  EXPECT_TRUE(dry.out.ends_with(tail)) << dry.out;
  EXPECT_EQ(run("-np 3 --dry-run -- train 'my run.toml' --restart train.steps=3").out, dry.out);
  const ShellResult real = run("-np 3 train 'my run.toml' --restart train.steps=3");
  EXPECT_EQ(real.code, 0);
  EXPECT_EQ(real.err, dry.out) << "standard output is the command's";
  EXPECT_TRUE(real.out.ends_with(" -np 3 " ASHLAR_BINARY " train my run.toml --restart train.steps=3\n")) << real.out;
}

TEST_F(Launch, AgreesWithTheScriptThatStartsTests) {
  const auto flags = [](const std::string& text) {
    std::istringstream words(text.substr(text.find(' ')));
    std::multiset<std::string> set;
    for (std::string word; words >> word && word != "-np";) {
      if (word != "--allow-run-as-root") set.insert(word);  // the script always says it
    }
    return set;
  };
  for (const char* version : {"4.1.4", "5.0.7"}) {
    mpirun("echo mpirun \"$@\"");
    const std::string replace = str_cat("sed -i 's/4\\.1\\.4/", version, "/' bin/mpirun");
    const ShellResult launch = run("-np 99999 --dry-run train x", replace);  // more than the cores
    ASSERT_EQ(launch.code, 0) << launch.err;
    const ShellResult script = run_shell("PATH=" + shell_quote(scratch_.file("bin")) + ":$PATH\n" +
                                         shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/with_ranks.sh") + " 99999 x");
    EXPECT_EQ(flags(launch.out), flags(script.out)) << version;
    EXPECT_GE(flags(launch.out).size(), 9u) << "else nothing was compared";
  }
}

TEST_F(Launch, NoXDisplayIsAskedForGpus) {
  mpirun("echo \"$HWLOC_COMPONENTS\"");
  const std::string script = "PATH=" + shell_quote(scratch_.file("bin")) + ":$PATH\n" +
                             shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/with_ranks.sh") + " 2 x";
  EXPECT_EQ(run("-np 2 train x", "unset HWLOC_COMPONENTS").out, "-gl\n");
  EXPECT_EQ(run_shell("unset HWLOC_COMPONENTS\n" + script).out, "-gl\n");
  EXPECT_EQ(run("-np 2 train x", "export HWLOC_COMPONENTS=-pci").out, "-pci\n") << "what the user has set stays";
  EXPECT_EQ(run_shell("export HWLOC_COMPONENTS=-pci\n" + script).out, "-pci\n");
}

// mpirun could not be stopped if it inherited what this program blocks and ignores.
TEST_F(Launch, LeavesNoSignalBlockedOrIgnored) {
  // Less the two signals that the threads of glibc have for themselves (32 and 33).
  const std::string show =
      "while read -r name mask; do case $name in SigBlk:|SigIgn:) echo $name $((0x$mask & ~(3 << 31)));; "
      "esac; done </proc/self/status; exit";
  mpirun(show);
  const ShellResult direct = run_shell("bash -c " + shell_quote(show));
  const ShellResult launched = run("-np 1 train x");
  EXPECT_EQ(launched.out, direct.out);
  EXPECT_THAT(direct.out, HasSubstr("SigBlk: 0\n"));
}

// Of mpirun's own paragraphs only those are left out that repeat the exit code of a rank that has said why.
TEST_F(Launch, WhatMpirunRepeatsIsLeftOut) {
  const std::string rule(74, '-');
  const std::string aborted =
      str_cat(rule, "\nPrimary job  terminated normally, but 1 process returned\n",
              "a non-zero exit code. Per user-direction, the job has been aborted.\n", rule, "\n");
  const std::string first = str_cat(rule, "\nmpirun detected that one or more processes exited with non-zero status,\n",
                                    "\n  Exit code:    2\n", rule, "\n");
  const std::string killed =
      str_cat(rule, "\nmpirun noticed that process rank 1 exited on signal 9 (Killed).\n", rule, "\n");
  const std::string said = "ashlar: [checkpoint] there is no 'x'\n";
  const auto filtered = [](const std::string& text, size_t piece) {
    std::string out;
    MpirunFilter filter([&](std::string_view part) { out += part; });
    for (size_t at = 0; at < text.size(); at += piece) filter.add(std::string_view(text).substr(at, piece));
    filter.finish();
    return out;
  };
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{50}, size_t{100000}}) {
    SCOPED_TRACE(piece);
    EXPECT_EQ(filtered(said + aborted + first, piece), said);
    EXPECT_EQ(filtered(aborted + said + first, piece), said) << "whichever comes first";
    EXPECT_EQ(filtered(aborted + first, piece), aborted + first) << "nobody has said why";
    EXPECT_EQ(filtered(said + killed + first, piece), said + killed);
    std::string saved = first;
    saved.replace(saved.find("    2"), 5, "    75");
    EXPECT_EQ(filtered(aborted + saved, piece), "") << "a run that was told to stop has said so";
    EXPECT_EQ(filtered("[warn] Epoll MOD(1) on fd 23 failed.\n[warn] Epo\n" + said, piece), "[warn] Epo\n" + said);
    EXPECT_EQ(filtered("ssh: no route\n--- x\n" + rule + "\nopen", piece), "ssh: no route\n--- x\n" + rule + "\nopen");
    EXPECT_EQ(filtered(rule + "\nPrimary job\n" + said +
                           "a non-zero exit code. Per user-direction, the job has been "
                           "aborted.\n" +
                           rule + "\n",
                       piece),
              said)
        << "in the middle of a paragraph";
    // Who was killed is repeated when another rank has named that one; alone, or of another rank, it is news.
    const auto lost = [](int rank, const std::string& more) {
      return str_cat("ashlar: [rank ", rank, " of 4 on a] died at step 7, last operation nothing", more,
                     "; the job ends here: run the same command again to resume from the last checkpoint\n");
    };
    EXPECT_EQ(filtered(lost(1, "") + killed + aborted, piece), lost(1, ""));
    EXPECT_EQ(filtered(killed + lost(1, ""), piece), lost(1, "")) << "whichever comes first";
    EXPECT_EQ(filtered(lost(2, "") + killed, piece), lost(2, "") + killed);
    EXPECT_EQ(filtered(lost(2, "; 1 more lost") + killed, piece), lost(2, "; 1 more lost"));
    EXPECT_EQ(filtered(killed + aborted, piece), killed + aborted);
  }
  mpirun("printf 'ashlar: [x] y\\n" + rule +
         "\\na non-zero exit code. Per user-direction, the job has been aborted.\\n" + rule + "\\n' >&2; exit 3");
  const ShellResult r = run("-np 2 train x");
  EXPECT_EQ(r.code, 3);
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 2) << r.err;
}

TEST_F(Launch, ARealErrorOfAllRanksIsOneLine) {
  const ShellResult r = run_shell(shell_quote(ASHLAR_BINARY) + " launch -np 2 eval /nowhere/at/all");
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 2) << "the line of mpirun, and the error: " << r.err;
}

// One line, and the code of a lost rank, which is not that of a killed program: who starts jobs can tell them apart.
TEST(LaunchedRun, AKilledRankIsNamedOnceByTheOthers) {
  const testing::RunFixture run;
  const std::string words =
      " train tiny.toml run.dir=r train.steps=100000000 train.eval_every=0 checkpoint.every=0 log.every=1000";
  const pid_t pid = run.start(str_cat("launch -np 2 --", words), "log");
  for (int i = 0; i < 30000 && run.exact_metrics("r").empty(); ++i) usleep(2000);
  kill(run.exact_metrics("r").empty() ? pid : run.rank_process(0), SIGKILL);
  EXPECT_EQ(testing::RunFixture::wait_for(pid), 5);
  const std::string log = run.read("log");
  EXPECT_THAT(log, ContainsRegex("\nashlar: \\[rank 0 of 2 on [^ ]+\\] died at step [0-9]+, last operation [^\n]*\n$"));
  EXPECT_THAT(log, Not(HasSubstr("noticed that process rank")));
}

TEST(LaunchedRun, ACrashedRankIsNamedOnceByItself) {
  const testing::RunFixture run;
  const pid_t pid = run.start(
      "launch -np 2 train tiny.toml run.dir=r train.steps=100000000 train.eval_every=0 checkpoint.every=0 "
      "log.every=1000",
      "log", "ASAN_OPTIONS=handle_segv=0");
  for (int i = 0; i < 30000 && run.exact_metrics("r").empty(); ++i) usleep(2000);
  kill(run.exact_metrics("r").empty() ? pid : run.rank_process(1), SIGSEGV);
  EXPECT_EQ(testing::RunFixture::wait_for(pid), 5) << "not 139";
  const std::string log = run.read("log");
  EXPECT_THAT(log, ContainsRegex("ashlar: \\[rank 1 of 2 on [^ ]+\\] signal SIGSEGV at step [0-9]+"));
  EXPECT_THAT(log, Not(HasSubstr("noticed that process rank")));
}

// What Open MPI leaves in shared memory when mpirun is killed goes with it, and nothing else does.
TEST(LaunchedRun, AKilledMpirunLeavesNoSharedMemory) {
  const auto segments = [] {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator("/dev/shm"))
      if (entry.path().filename().string().starts_with("vader_segment.")) names.insert(entry.path());
    return names;
  };
  const std::string foreign = str_cat("/dev/shm/vader_segment.other.0.1.", getpid());
  std::ofstream(foreign) << "x";
  const testing::RunFixture run;
  const pid_t pid = run.start(
      "launch -np 2 train tiny.toml run.dir=r train.steps=100000000 train.eval_every=0 checkpoint.every=0 "
      "log.every=1000",
      "log");
  for (int i = 0; i < 30000 && run.exact_metrics("r").empty(); ++i) usleep(2000);
  const pid_t rank = run.find_rank_process(0).value_or(0);
  std::set<std::string> own;  // mapped by a rank
  std::ifstream maps(str_cat("/proc/", rank, "/maps"));
  for (std::string line; std::getline(maps, line);)
    if (line.find("/dev/shm/vader_segment.") != std::string::npos) own.insert(line.substr(line.find("/dev/shm/")));
  EXPECT_EQ(own.size(), 2u) << "else nothing is tried";
  int mpirun = 0;
  std::ifstream(str_cat("/proc/", pid, "/task/", pid, "/children")) >> mpirun;
  kill(mpirun == 0 ? pid : mpirun, SIGKILL);
  EXPECT_EQ(testing::RunFixture::wait_for(pid), 5);
  EXPECT_THAT(run.read("log"), HasSubstr("ashlar: [launch] mpirun was killed by SIGKILL"));
  const std::set<std::string> left = segments();
  for (const std::string& name : own) EXPECT_FALSE(left.contains(name)) << name;
  EXPECT_TRUE(left.contains(foreign));
  EXPECT_FALSE(run.find_rank_process(0) || run.find_rank_process(1));
  fs::remove(foreign);
}

TEST_F(Launch, WhomNobodyNamesMpirunNames) {
  const std::string told = "mpirun noticed that process rank 0 exited on signal 9 (Killed).";
  const std::string rule(74, '-');
  mpirun("echo " + rule + " >&2; echo '" + told + "' >&2; echo " + rule + " >&2; exit 137");
  const ShellResult r = run("-np 1 train x");
  EXPECT_EQ(r.code, 5) << "a lost rank, whoever names it";
  EXPECT_THAT(r.err, HasSubstr(told));
}

// mpirun kills the ranks when it is told to end; it hands SIGUSR1 to them, and they save. So launch lets a training run
// save first.
TEST_F(Launch, SignalsLetATrainingRunSaveFirst) {
  mpirun("trap 'echo got it; exit 75' USR1; echo up; for i in $(seq 200); do sleep 0.05; done");
  const std::string start =
      "set -m; cd " + shell_quote(scratch_.path().string()) + "; PATH=$PWD/bin:$PATH; rm -f log; ";
  const std::string wait_up = " >log 2>&1 & pid=$!; until grep -q up log; do sleep 0.05; done; ";
  const std::string launch = start + shell_quote(ASHLAR_BINARY) + " launch -np 1 ";
  const std::string result = " $pid; wait $pid; echo code $?; cat log";
  for (const auto& [signal, code] : {std::pair{"USR1", 75}, std::pair{"TERM", 76}, std::pair{"INT", 77}}) {
    const ShellResult told = run_shell(str_cat(launch, "train x", wait_up, "kill -", signal, result));
    EXPECT_THAT(told.out, HasSubstr(str_cat("code ", code, "\n")));
    EXPECT_THAT(told.out, HasSubstr("got it"));
    const std::string said = str_cat("ashlar: SIG", signal, ": asking the ranks to save and stop (SIGUSR1)");
    EXPECT_EQ(told.out.find(said) != std::string::npos, code != 75) << told.out;
    // As the terminal's Ctrl-C does: to all processes of launch's group, of which mpirun is none.
    const ShellResult group =
        run_shell(str_cat(launch, "train x", wait_up, "kill -", signal, " -- -", result.substr(1)));
    EXPECT_THAT(group.out, HasSubstr(str_cat("code ", code, "\n")));
  }
  // A second one, to ranks that do not stop. Open MPI ends with 1, after a second in which it passes no line of a rank.
  mpirun("trap '' USR1; trap 'sleep 0.2; exit 1' TERM INT; echo up; for i in $(seq 200); do sleep 0.05; done");
  for (const auto& [signal, code] : {std::pair{"TERM", 76}, std::pair{"INT", 77}}) {
    const ShellResult aborted =
        run_shell(str_cat(launch, "train x", wait_up, "kill -", signal, " $pid; sleep 0.1; kill -", signal, result));
    EXPECT_THAT(aborted.out,
                HasSubstr(str_cat("ashlar: SIG", signal, ": mpirun ends the ranks within about a second")));
    EXPECT_THAT(aborted.out, HasSubstr(str_cat("code ", code, "\n")));
    // What saves nothing ends with the first.
    const ShellResult eval = run_shell(str_cat(launch, "eval x", wait_up, "kill -", signal, result));
    EXPECT_THAT(eval.out, HasSubstr(str_cat("ashlar: SIG", signal, ": mpirun ends the ranks within about a second")));
    EXPECT_THAT(eval.out, HasSubstr(str_cat("code ", code, "\n")));
  }
}

TEST_F(Launch, RunsRanks) {
  const ShellResult result = run_shell("timeout 100 " + shell_quote(ASHLAR_BINARY) +
                                       " launch -np 3 bench comm --largest 4096 --seconds 0.001");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("3 ranks"));
}

TEST_F(Launch, MistakesAreNamed) {
  const auto fails = [&](const std::string& words, const std::string& said, const std::string& before = "") {
    const ShellResult result = run(words, before);
    EXPECT_EQ(result.code, 2) << words << result.out;
    EXPECT_THAT(result.err, HasSubstr(said)) << words;
    EXPECT_EQ(result.out, "") << words;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  };
  fails("train x", "ashlar: [launch] expected -np and a number of ranks, got none; usage: ashlar launch -np N");
  fails("-np 0 train x", "-np = 0: expected a whole number from 1");
  fails("-np two train x", "-np = two");
  fails("-np", "-np needs a value");
  fails("-np 2", "expected a command such as train, got none");
  fails("-np 2 --", "expected a command such as train, got none");
  fails("-np -- train x", "-np = --");
  fails("-np 2 -- --dry-run train x", "unknown command '--dry-run'");
  fails("-np 2 launch -np 2 train x", "got launch");
  fails("-np 2 trian x", "ashlar: [ashlar] unknown command 'trian'; did you mean train? see ashlar --help");
  fails("-np 2 --hostfil f train x", "unknown option '--hostfil'; did you mean --hostfile?");
  fails("-np 2 --hostfile nowhere train x", "--hostfile 'nowhere' cannot be read");
  fails("-np 2 --hostfile nowhere --host a train x", "got both; give one");
  fails("-np 2 train x", "expected mpirun on PATH, got none; install openmpi-bin", "PATH=/nowhere");
  fails("-np 2 train x", "expected mpirun on PATH, got none", "ln -s loop loop; PATH=$PWD/loop");
}

}  // namespace
}  // namespace ashlar::launch
