// ./quickstart itself, few steps, into a scratch folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/quickstart/commands.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar::quickstart {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::shell_quote;
using testing::ShellResult;

ShellResult quickstart(const std::string& arguments) {
  const std::string build = std::filesystem::path(ASHLAR_BINARY).parent_path().string();
  return testing::run_shell("cd / && ASHLAR_BUILD_DIR=" + shell_quote(build) + " " +
                            shell_quote(ASHLAR_SOURCE_DIR "/quickstart") + " " + arguments);
}

TEST(Quickstart, TrainsOnThisMachinesTextAndSkipsWhatIsDone) {
  const testing::ScratchDir scratch;
  const std::string run_dir = scratch.file("run");
  const ShellResult first = quickstart("--steps 6 --run-dir " + shell_quote(run_dir));
  ASSERT_EQ(first.code, 0) << first.out << first.err;

  const std::vector<nlohmann::json> rows = metrics(run_dir);
  ASSERT_EQ(rows.size(), 7u) << "six steps and one validation";
  EXPECT_LT(rows.back()["val_loss"].get<double>(), rows.front()["loss"].get<double>());

  const std::string report = ashlar("data inspect " + shell_quote(run_dir + "/dataset") + " --entropy");
  const double unigram = entropy(report, "unigram"), bigram = entropy(report, "bigram");
  ASSERT_LT(bigram, unigram);
  // Three lines of a number with three digits. The shell rounds in long double, so a tie may go either way.
  size_t at = first.out.find("   nats per token");
  ASSERT_NE(at, std::string::npos) << first.out;
  for (const double expected : {unigram, bigram, rows.back()["val_loss"].get<double>()}) {
    at = first.out.find("\n     ", at);
    ASSERT_NE(at, std::string::npos) << first.out;
    at += 6;
    EXPECT_NEAR(std::stod(first.out.substr(at)), expected, 0.00051) << first.out;
  }
  EXPECT_THAT(first.out, HasSubstr("loss of "));
  EXPECT_THAT(first.out, HasSubstr("trained on " + rows[5]["tokens"].dump() + " tokens"));
  EXPECT_THAT(first.out, HasSubstr("template<typename _Tp"));
  EXPECT_THAT(first.out, HasSubstr("What next:"));
  EXPECT_THAT(report, HasSubstr("byte-level BPE"));

  const ShellResult second = quickstart("--steps 6 --run-dir " + shell_quote(run_dir));
  ASSERT_EQ(second.code, 0) << second.out << second.err;
  EXPECT_THAT(second.out, HasSubstr("already made"));
  EXPECT_THAT(second.out, Not(HasSubstr("step 1/6")));
  EXPECT_EQ(metrics(run_dir).size(), 7u);
  EXPECT_EQ(first.out.substr(first.out.find("   nats per token")).substr(0, 200),
            second.out.substr(second.out.find("   nats per token")).substr(0, 200));

  // The same folder for other text: refused before anything is trained.
  const ShellResult other = quickstart("--run-dir " + shell_quote(run_dir) + " " ASHLAR_SOURCE_DIR "/core");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("built from other text"));
}

TEST(Quickstart, TrainsOnGivenPaths) {
  const testing::ScratchDir scratch;
  const std::string run_dir = scratch.file("a run");
  const ShellResult result = quickstart("--steps=2 --run-dir=" + shell_quote(run_dir) +
                                        " " ASHLAR_SOURCE_DIR "/core " ASHLAR_SOURCE_DIR "/data");
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(metrics(run_dir).size(), 3u);
}

}  // namespace
}  // namespace ashlar::quickstart
