// What eval, generate and run.init_from read of a run's newest checkpoint, and what they do when it is damaged.
#include <gtest/gtest.h>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/damage.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMiB = int64_t{1} << 20;

/// Two checkpoints of 9 MB of weights and twice that of moments.
class Loading : public ::testing::Test {
 protected:
  Loading() {
    must(str_cat(kTrain, " run.dir=run train.steps=2 checkpoint.every=1"));
    for (const auto& entry : fs::directory_iterator(checkpoint(2)))
      if (entry.path().extension() == ".safetensors") bytes_ += static_cast<int64_t>(fs::file_size(entry.path()));
    EXPECT_GT(bytes_, 24 * kMiB);
  }
  fs::path checkpoint(int64_t step) const { return run_.dir() / "run/checkpoints" / str_cat("step-0000000", step); }
  ShellResult must(const std::string& words) const {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, 0) << words << "\n" << r.out << r.err;
    return r;
  }
  /// What `ashlar WORDS` asks the system to read: a shell is charged with what its children have read.
  int64_t bytes_read(const std::string& words) const {
    const auto rchar = [](const std::string& text) { return std::stoll(text.substr(text.rfind("rchar: ") + 7)); };
    const char* const kLook = " grep rchar /proc/$$/io";
    const std::string nothing = run_shell(str_cat("true;", kLook)).out;
    const ShellResult r = run_shell("cd " + shell_quote(run_.dir().string()) + " && " + shell_quote(ASHLAR_BINARY) +
                                    " " + words + " || echo failed;" + kLook);
    EXPECT_EQ(r.out.find("failed"), std::string::npos) << words << "\n" << r.out << r.err;
    return rchar(r.out) - rchar(nothing);
  }

  static constexpr const char* kTrain =
      "train tiny.toml model.d_model=192 model.n_layers=4 model.d_ff=768 train.global_batch=1 train.micro_batch=1 "
      "train.eval_every=0 dropout.resid=0 dropout.attn=0 schedule.warmup_steps=0";
  static constexpr const char* kWeights = "weights-00000.safetensors";
  static constexpr const char* kMoments = "optimizer-00000.safetensors";
  RunFixture run_;
  int64_t bytes_ = 0;
};

constexpr const char* kEval = "eval run --sequences 2";
constexpr const char* kGenerate = "generate run --tokens 1";

TEST_F(Loading, EachByteOfTheNewestIsReadOnce) {
  const std::string fresh = str_cat(kTrain, " checkpoint.every=0 train.steps=1 run.dir=");
  const int64_t begun = bytes_read(fresh + "seeded");
  const int64_t read[] = {bytes_read(kEval), bytes_read(kGenerate),
                          bytes_read(fresh + "next run.init_from=run") - begun};
  for (const int64_t bytes : read) {
    // A chunk with a file's header comes up to three times, one at the seam of two flat buffers twice; all else is 1
    // MB.
    EXPECT_LE(bytes, bytes_ + 6 * kMiB) << "of " << bytes_;
    EXPECT_GE(bytes, bytes_ - kMiB) << "also what is not loaded is checked, of " << bytes_;
  }
}

TEST_F(Loading, DamageAnywhereMeansTheNextOlder) {
  const std::string next = str_cat(kTrain, " train.steps=1 run.init_from=run run.dir=");
  for (const char* file : {kWeights, kMoments}) {
    SCOPED_TRACE(file);
    flip_middle_bit(checkpoint(2) / file);
    for (const std::string& words : {std::string(kEval), std::string(kGenerate), next + file}) {
      const ShellResult r = must(words);
      const std::string said = r.out + r.err;
      EXPECT_NE(said.find("step-00000002' is damaged and skipped"), std::string::npos) << said;
      EXPECT_NE(said.find(file), std::string::npos) << said;
    }
    EXPECT_NE(must(kEval).out.find("step-00000001)"), std::string::npos) << "what was evaluated is said";
    flip_middle_bit(checkpoint(2) / file);
  }
  EXPECT_NE(must(kEval).out.find("step-00000002)"), std::string::npos);
  // The weights of the older one, not of the damaged one or of both.
  const std::string older = must("eval run/checkpoints/step-00000001 --sequences 2").out;
  flip_middle_bit(checkpoint(2) / kWeights);
  const auto loss = [](const std::string& text) { return text.substr(text.find("val_loss "), 17); };
  EXPECT_EQ(loss(must(kEval).out), loss(older));

  // One that was named is taken or refused, and none in its place.
  for (const std::string& words :
       {std::string("eval"), std::string("generate"), str_cat(kTrain, " train.steps=1 run.dir=named run.init_from=")}) {
    const std::string sep = words.back() == '=' ? "" : " ";
    const ShellResult r = run_.ashlar(words + sep + "run/checkpoints/step-00000002");
    EXPECT_EQ(r.code, 3) << words << r.out << r.err;
    EXPECT_NE(r.err.find(kWeights), std::string::npos) << r.err;
  }
  flip_middle_bit(checkpoint(1) / kMoments);
  const ShellResult none = run_.ashlar(kEval);
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.err.find("are damaged; restore"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace ashlar::testing
