// What grows with the ranks: no rank sends a step more messages or bytes of host values than a tree asks for, staging
// stays within its budget. Four and eight ranks; the long form goes to 64, mesh 4 x 4 x 4 among them, loses a rank and
// goes on with 16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <csignal>
#include <iostream>
#include <regex>
#include <thread>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/long_form.h"

namespace ashlar::testing {
namespace {

using ::testing::HasSubstr;

/// The numbers of a run's line "traffic: ...".
struct Counted {
  double messages = 0, bytes = 0, host_messages = 0, host_bytes = 0, staging = 0, descriptors = 0;
};

Counted counted(const std::string& log) {
  static const std::regex kLine(
      R"(at most ([0-9.]+) messages with ([0-9]+) bytes of tensors and ([0-9.]+) with ([0-9]+) of host values; )"
      R"(staging ([0-9]+) bytes, descriptors ([0-9]+))");
  std::smatch found;
  if (!std::regex_search(log, found, kLine)) throw std::runtime_error("no line of traffic in " + log);
  return {.messages = std::stod(found[1]),
          .bytes = std::stod(found[2]),
          .host_messages = std::stod(found[3]),
          .host_bytes = std::stod(found[4]),
          .staging = std::stod(found[5]),
          .descriptors = std::stod(found[6])};
}

class Growth : public ::testing::Test {
 protected:
  std::string words(int ranks, const std::string& mesh) const {
    return str_cat("launch -np ", ranks,
                   " train tiny.toml run.threads=1 vocab.pad_to=4 model.n_layers=4 model.n_heads=4 train.micro_batch=1 "
                   "train.eval_every=0 checkpoint.every=0 train.global_batch=64 ",
                   mesh);
  }
  Counted run(int ranks, const std::string& mesh) const {
    const ShellResult r =
        run_.ashlar(words(ranks, str_cat("train.steps=5 run.dir=run-", ranks, "-", mesh.size(), " ", mesh)));
    EXPECT_EQ(r.code, 0) << r.err;
    std::cout << ranks << " ranks, " << mesh << ": "
              << r.out.substr(r.out.find("traffic:"), r.out.find("descriptors") - r.out.find("traffic:") + 14) << "\n";
    return counted(r.out);
  }
  RunFixture run_;
};

TEST_F(Growth, OfMessagesIsLogarithmic) {
  std::vector<std::pair<int, std::string>> runs = {
      {4, "mesh.data=4"}, {8, "mesh.data=8"}, {8, "mesh.data=2 mesh.tensor=2 mesh.pipeline=2"}};
  if (long_form()) {
    for (const int ranks : {16, 32, 64}) runs.emplace_back(ranks, str_cat("mesh.data=", ranks));
    runs.emplace_back(64, "mesh.data=4 mesh.tensor=4 mesh.pipeline=4");
  }
  const Counted four = run(runs[0].first, runs[0].second);
  for (size_t i = 1; i < runs.size(); ++i) {
    SCOPED_TRACE(str_cat(runs[i].first, " ranks ", runs[i].second));
    const Counted c = run(runs[i].first, runs[i].second);
    const int depth = std::bit_width(static_cast<unsigned>(runs[i].first - 1));
    // A message of a step: one frame to the parent, one to each child.
    EXPECT_LE(c.host_messages, depth + 1.0);
    EXPECT_LE(c.host_bytes, (depth + 1.0) * 512);
    EXPECT_LE(c.staging, 16.0 * (1 << 20));
    EXPECT_LE(c.descriptors, four.descriptors + 8 * depth + 8);
  }
}

TEST_F(Growth, SlowSixtyFourRanksLoseOneAndGoOnWithSixteen) {
  if (!long_form()) return;
  const std::string mesh = "mesh.data=4 mesh.tensor=4 mesh.pipeline=4";
  ASSERT_EQ(run_.ashlar(words(64, "train.steps=5 run.dir=run " + mesh)).code, 0);
  // On with more steps; a rank is killed once the first of them is written.
  const pid_t pid = run_.start(words(64, "train.steps=40961 run.dir=run " + mesh), "second.log");
  while (run_.metric("run", "loss").size() < 7) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const ShellResult killed = run_shell("kill -9 $(pgrep -f train.steps=40961 -n)");
  EXPECT_NE(RunFixture::wait_for(pid), 0);
  const ShellResult r = run_.ashlar(words(16, "train.steps=10 run.dir=run mesh.data=4 mesh.tensor=2 mesh.pipeline=2"));
  EXPECT_EQ(r.code, 0) << r.err << killed.err;
  EXPECT_THAT(r.out, HasSubstr("at step 5"));
}

}  // namespace
}  // namespace ashlar::testing
