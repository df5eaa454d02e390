// Real text through the real commands: what comes out must have learnt something.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/quickstart/commands.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar::quickstart {
namespace {

using testing::shell_quote;

class Licences : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string inputs;
    for (const std::string& file : licence_texts()) inputs += shell_quote(file) + " ";
    if (inputs.empty()) GTEST_SKIP() << "no /usr/share/common-licenses on this system";
    ashlar("data build " + inputs + "--out " + shell_quote(dataset()));
  }

  std::string dataset() const { return scratch_.file("dataset"); }

  testing::ScratchDir scratch_;
};

// A small model that sees 64 bytes must do better on unseen text than the best guess from the byte before, which the
// data tells: not a number set by eye.
TEST_F(Licences, ATinyModelBeatsHeldOutBigrams) {
  const std::string config = scratch_.file("tiny.toml");
  std::ofstream(config) << R"(
[run]
dtype = "fp32"
threads = 1
[model]
d_model = 96
n_layers = 2
n_heads = 3
[train]
steps = 250
sequence_length = 64
global_batch = 16
eval_every = 0
[optimizer]
lr = 4e-3
[log]
every = 100
)";
  ashlar("train " + shell_quote(config) + " run.dir=" + shell_quote(scratch_.file("run")) +
         " data.path=" + shell_quote(dataset()));
  const std::vector<nlohmann::json> rows = metrics(scratch_.path() / "run");
  ASSERT_EQ(rows.size(), 251u) << "250 steps and one validation";
  const std::string report = ashlar("data inspect " + shell_quote(dataset()) + " --entropy");
  const double unigram = entropy(report, "unigram"), bigram = entropy(report, "bigram");
  ASSERT_LT(bigram, unigram) << report;
  EXPECT_NEAR(rows.front()["loss"].get<double>(), std::log(257.0), 0.5) << "a fresh model guesses evenly";
  EXPECT_LT(rows.back()["val_loss"].get<double>(), bigram) << report;
}

}  // namespace
}  // namespace ashlar::quickstart
