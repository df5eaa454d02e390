// launch/scripts/suites.sh counts what executables report, and no way to die goes uncounted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_shell;
using testing::shell_quote;
using testing::ShellResult;

class Suites : public ::testing::Test {
 protected:
  // A stand-in for a test executable: `body` sees the path of the XML report as $xml.
  void suite(const std::string& name, const std::string& body) {
    const std::string path = scratch_.file("test_" + name);
    testing::write_program(path, "xml=${1#--gtest_output=xml:}\n" + body);
    calls_ += "run_suite " + name + " " + name + " " + shell_quote(path) + " ${budget:--}\n";
  }

  ShellResult run(const std::string& prologue = "") {
    return run_shell("set -euo pipefail\nroot=" + shell_quote(ASHLAR_SOURCE_DIR) +
                     "\n. \"$root/launch/scripts/common.sh\"\n. \"$root/launch/scripts/suites.sh\"\n" + prologue +
                     "\nsuites_begin " + shell_quote(scratch_.file("results")) + "\n" + calls_ + "suites_end\n");
  }

  static std::string testcase(const std::string& name, const std::string& result, const std::string& inside = "") {
    return "echo '    <testcase name=\"" + name + "\" file=\"f\" line=\"1\" status=\"run\" result=\"" + result +
           "\" time=\"0\" classname=\"C\">" + (inside.empty() ? "" : "\n      " + inside) + "' >>\"$xml\"\n";
  }

  testing::ScratchDir scratch_;
  std::string calls_;
};

TEST_F(Suites, EverythingPassing) {
  suite("one", testcase("A", "completed") + testcase("B", "completed"));
  suite("two", testcase("A", "completed"));
  const ShellResult result = run();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::EndsWith("\n3 passed, 0 failed, 0 skipped\n"));
}

TEST_F(Suites, FailuresAndSkipsAreCountedAndNamed) {
  suite("one", testcase("A", "completed") + testcase("B", "completed", "<failure message=\"f:1&#x0A;no\" type=\"\">") +
                   testcase("C", "skipped", "<skipped message=\"f:1&#x0A;no file &quot;x&quot; &amp; y\">") +
                   testcase("D", "suppressed") + "exit 1\n");
  const ShellResult result = run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("one C.B\n"));
  EXPECT_THAT(result.out, HasSubstr("one C.C: no file \"x\" & y\n"));
  EXPECT_THAT(result.out, HasSubstr("one C.D: switched off\n"));
  EXPECT_THAT(result.out, ::testing::EndsWith("\n1 passed, 1 failed, 2 skipped\n"));
}

TEST_F(Suites, SkipsOfOneReasonAreOneLine) {
  const auto skipped = [](const std::string& name, const std::string& reason) {
    return testcase(name, "skipped", "<skipped message=\"f:1&#x0A;" + reason + "\">");
  };
  suite("one", skipped("A", "no nccl.h: x") + skipped("B", "one rank") + skipped("C", "no nccl.h: x"));
  suite("two", skipped("A", "no nccl.h: x"));
  const ShellResult result = run();
  const std::string names = scratch_.file("results") + "/skipped";
  EXPECT_THAT(result.out, HasSubstr("\n== Skipped (by name: " + names +
                                    ")\n   one C.A and 2 more: no nccl.h: x\n   one C.B: one rank\n\n"));
  EXPECT_THAT(result.out, ::testing::EndsWith("\n0 passed, 0 failed, 4 skipped\n"));
  std::ifstream file(names);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(all, "one C.A: no nccl.h: x\none C.B: one rank\none C.C: no nccl.h: x\ntwo C.A: no nccl.h: x\n");
}

TEST_F(Suites, OutputOfTheFailingTestIsShownAndOfOthersNot) {
  suite("one",
        "echo '[ RUN      ] C.A'; echo quiet; echo '[       OK ] C.A (0 ms)'\n"
        "echo '[ RUN      ] C.B'; echo loud; echo '[  FAILED  ] C.B (0 ms)'\n" +
            testcase("A", "completed") + testcase("B", "completed", "<failure message=\"x\">") + "exit 1\n");
  const ShellResult result = run();
  EXPECT_THAT(result.out, HasSubstr("| loud\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("quiet")));
}

TEST_F(Suites, ACrashIsAFailureThatNamesTheTest) {
  suite("one", "echo '[ RUN      ] C.A'; echo '[       OK ] C.A (0 ms)'\necho '[ RUN      ] C.B'\nkill -SEGV $$\n");
  suite("two", testcase("A", "completed"));
  const ShellResult result = run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("one crashed with code 139 in C.B; the tests after it did not run\n"));
  EXPECT_THAT(result.out, ::testing::EndsWith("\n2 passed, 1 failed, 0 skipped\n"));
}

TEST_F(Suites, AHangIsAFailureThatNamesTheTest) {
  suite("one", "echo '[ RUN      ] C.A'\nsleep 60\n");
  const ShellResult result = run("hang_limit() { echo 1; }");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("one was stopped after 1 s in C.A; the tests after it did not run\n"));
}

TEST_F(Suites, AnExecutableThatIsMissingIsAFailure) {
  calls_ = "run_suite one one " + shell_quote(scratch_.file("nowhere")) + " -\n";
  const ShellResult result = run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("one crashed with code 127 in its start"));
}

TEST_F(Suites, ALeakAfterPassingTestsIsAFailure) {
  suite("one", testcase("A", "completed") + "echo '==1==ERROR: LeakSanitizer: detected memory leaks'\nexit 23\n");
  const ShellResult result = run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("one ended with code 23 though no test failed\n"));
  EXPECT_THAT(result.out, HasSubstr("LeakSanitizer: detected memory leaks"));
  EXPECT_THAT(result.out, ::testing::EndsWith("\n1 passed, 1 failed, 0 skipped\n"));
}

TEST_F(Suites, ASuiteWithoutTestsIsAFailure) {
  suite("one", "echo '<testsuites tests=\"0\">' >\"$xml\"\n");
  const ShellResult result = run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("one ran no test\n"));
}

// A suite with ranks is started by mpirun, here a stand-in that says how often and with how many ranks it was called.
class RankSuites : public Suites {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(scratch_.path() / "bin");
    testing::write_program(scratch_.file("bin/mpirun"),
                           "[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && exit\n"
                           "while [ \"$1\" != -np ]; do shift; done\nexport ranks=$2\nshift 2\nexec \"$@\"");
  }
  void ranks(const std::string& name, const std::string& counts) {
    std::ofstream(scratch_.file("test_" + name + ".ranks")) << counts << "\n";
  }
  ShellResult run_ranks(const std::string& prologue = "") {
    return run("PATH=" + shell_quote((scratch_.path() / "bin").string()) + ":$PATH\n" + prologue);
  }
};

TEST_F(RankSuites, RunOnceForEachNumberOfRanks) {
  suite("one", testcase("A", "completed") + "[ $ranks -lt 3 ] || " + testcase("B", "completed"));
  ranks("one", "1 2 4");
  const ShellResult result = run_ranks();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("one on 1"));
  EXPECT_THAT(result.out, HasSubstr("one on 4"));
  EXPECT_THAT(result.out, ::testing::EndsWith("\n4 passed, 0 failed, 0 skipped\n"));
}

TEST_F(RankSuites, FailuresNameTheNumberOfRanks) {
  suite("one", testcase("A", "completed", "<failure message=\"x\">") + "exit 1\n");
  suite("two", testcase("A", "completed"));
  ranks("one", "2 3");
  const ShellResult result = run_ranks();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("one on 2 C.A\n"));
  EXPECT_THAT(result.out, HasSubstr("one on 3 C.A\n"));
  EXPECT_THAT(result.out, ::testing::EndsWith("\n1 passed, 2 failed, 0 skipped\n"));
}

TEST_F(RankSuites, AHangIsCutAndNamesTheTest) {
  suite("one", "echo '[ RUN      ] C.A'\n[ $ranks = 1 ] || sleep 60\n" + testcase("A", "completed"));
  ranks("one", "1 2");
  const ShellResult result = run_ranks("hang_limit() { echo 1; }");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("one on 2 was stopped after 1 s in C.A; the tests after it did not run\n"));
  EXPECT_THAT(result.out, ::testing::EndsWith("\n1 passed, 1 failed, 0 skipped\n"));
}

TEST_F(RankSuites, AnotherMpiIsToldOnlyTheNumberOfRanks) {
  testing::write_program(scratch_.file("bin/mpirun"), "[ \"$1\" = --version ] || echo \"mpirun $*\"");
  const ShellResult result = run_shell("PATH=" + shell_quote((scratch_.path() / "bin").string()) + ":$PATH\n" +
                                       shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/with_ranks.sh") + " 3 program x");
  EXPECT_EQ(result.out, "mpirun -n 3 program x\n");
}

TEST_F(RankSuites, MissingArgumentsOrMpirunAreSaid) {
  const std::string script = shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/with_ranks.sh");
  const ShellResult none = run_shell(script + " 3");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("usage"));
  const ShellResult missing = run_shell("bash=$(command -v bash)\nPATH=/nowhere \"$bash\" " + script + " 3 true");
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("install openmpi-bin"));
}

TEST_F(Suites, JobsRunSideBySideAndAreAllCounted) {
  std::string jobs = "jobs=()\n";
  for (const char* name : {"one", "two", "three"}) {
    const std::string path = scratch_.file(std::string("test_") + name);
    // Each waits until another is there.
    testing::write_program(
        path, "xml=${1#--gtest_output=xml:}\ntouch " + shell_quote(scratch_.file("ready-")) + "$$\n" +
                  "for i in $(seq 100); do [ $(ls " + shell_quote(scratch_.path().string()) +
                  " | grep -c ready-) -ge 2 ] && break; sleep 0.05; done\n[ $i -lt 100 ] || exit 1\n" +
                  testcase("A", "completed") +
                  (std::string(name) == "two"
                       ? testcase("B", "completed", "<failure message=\"f:1&#x0A;no\" type=\"\">") + "exit 1\n"
                       : ""));
    jobs +=
        "jobs+=(\"$(printf '%s\\n' run_suite " + std::string(name) + " " + name + " " + shell_quote(path) + " -)\")\n";
  }
  calls_ = jobs + "run_jobs\n";
  const ShellResult result = run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("two C.B\n"));
  EXPECT_THAT(result.out, ::testing::EndsWith("\n3 passed, 1 failed, 0 skipped\n")) << result.out << result.err;
}

TEST_F(Suites, HalvesRunEveryTestOnce) {
  const std::string path = scratch_.file("test_half");
  testing::write_program(path, "xml=${1#--gtest_output=xml:}\n" +
                                   testcase("T$GTEST_SHARD_INDEX.$GTEST_TOTAL_SHARDS", "completed") +
                                   "[ $GTEST_SHARD_INDEX = 0 ] || exit 1\n");
  std::string jobs = "jobs=()\n";
  for (const char* half : {"0", "1"})
    jobs += "jobs+=(\"$(printf '%s\\n' run_half " + std::string(half) + " half half-" + half + " " + shell_quote(path) +
            " -)\")\n";
  calls_ = jobs + "run_jobs\n";
  const ShellResult result = run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("half-1 ended with code 1"));
  EXPECT_THAT(result.out, ::testing::EndsWith("\n2 passed, 1 failed, 0 skipped\n")) << result.out << result.err;
}

TEST_F(Suites, HalvesRunBesideThreeOthers) {
  // Each waits until five are there.
  const std::string path = scratch_.file("test_any"), folder = shell_quote(scratch_.path().string());
  testing::write_program(path, "xml=${1#--gtest_output=xml:}\ntouch " + folder + "/ready-$$\n" +
                                   "for i in $(seq 100); do [ $(ls " + folder +
                                   " | grep -c ready-) -ge 5 ] && break; sleep 0.05; done\n[ $i -lt 100 ] || exit 1\n" +
                                   testcase("A", "completed"));
  std::string jobs = "jobs=()\n";
  for (const char* entry :
       {"run_half 0 half", "run_half 1 other", "run_suite one", "run_suite two", "run_suite three"}) {
    const std::string label = entry;
    jobs += "jobs+=(\"$(printf '%s\\n' " + label + " " + label.substr(label.find_last_of(' ') + 1) + " " +
            shell_quote(path) + " -)\")\n";
  }
  calls_ = jobs + "run_jobs\n";
  const ShellResult result = run();
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.out, ::testing::EndsWith("\n5 passed, 0 failed, 0 skipped\n")) << result.out << result.err;
}

TEST_F(Suites, WarningsOfTheProgramAreShown) {
  suite("one", "echo 'warning: x is slow'\n" + testcase("A", "completed"));
  const ShellResult result = run();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("one, log line 1:warning: x is slow\n"));
}

TEST_F(Suites, OverTheBudgetWarnsOverTwiceFails) {
  suite("one", "sleep 1.2\n" + testcase("A", "completed"));
  const ShellResult warned = run("budget=1");
  EXPECT_EQ(warned.code, 0);
  EXPECT_THAT(warned.out, HasSubstr("over its budget of 1 s\n"));
  EXPECT_THAT(warned.out, ::testing::EndsWith("\n1 passed, 0 failed, 0 skipped\n"));
  const ShellResult failed = run("budget=0");
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.out, HasSubstr("more than twice its budget of 0 s\n"));
  EXPECT_THAT(failed.out, ::testing::EndsWith("\n1 passed, 1 failed, 0 skipped\n"));
}

}  // namespace
}  // namespace ashlar
