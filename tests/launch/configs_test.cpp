// Each file of configs/: read whole, and a tiny twin of it trained to a lower loss and continued to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> config_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(ASHLAR_SOURCE_DIR "/configs"))
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// What makes any configuration small enough for seconds; the rest of the file stays as it is.
std::string twin(const fs::path& config, const std::string& text, const std::string& dtype) {
  std::string words = shell_quote(config.string()) + " data.path=data run.threads=1 run.dtype=" + dtype +
                      " model.d_model=32 model.n_layers=2 model.n_heads=2 train.sequence_length=32"
                      " train.global_batch=4 train.micro_batch=2 train.eval_every=6 train.eval_sequences=8"
                      " schedule.warmup_steps=2 optimizer.lr=1e-2 checkpoint.every=6";
  // Derived keys that the file gives would keep the size of the large model.
  if (text.find("d_ff =") != std::string::npos) words += " model.d_ff=64";
  if (text.find("head_dim =") != std::string::npos) words += " model.head_dim=16";
  if (text.find("n_kv_heads =") != std::string::npos) words += " model.n_kv_heads=1";
  if (text.find("max_positions =") != std::string::npos) words += " pos.max_positions=32";
  if (text.find("\nsize =") != std::string::npos) words += " vocab.size=257";
  return words;
}

std::vector<double> validation_losses(const RunFixture& run, const std::string& dir) {
  std::vector<double> losses;
  std::istringstream rows(run.read(dir + "/metrics.jsonl"));
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("val_loss")) losses.push_back(row.at("val_loss"));
  }
  return losses;
}

TEST(Configs, EveryFileIsReadWhole) {
  const RunFixture run;
  const auto files = config_files();
  ASSERT_GE(files.size(), 3u);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file);
    const bool has_vocabulary = run_shell("grep -q '^size = ' " + shell_quote(file.string())).code == 0;
    const ShellResult r =
        run.ashlar("params " + shell_quote(file.string()) + (has_vocabulary ? "" : " vocab.size=257"));
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.out.find("100.0%"), std::string::npos) << r.out;
    if (file.filename() == "gpt2-124m.toml") {  // as published, padded by 47 rows of 768
      EXPECT_NE(r.out.find(std::to_string(124'439'808 + 47 * 768)), std::string::npos) << r.out;
    }
  }
}

TEST(Configs, TheKvCacheOfAContextIsTold) {
  const RunFixture run;
  const std::string words = "params " ASHLAR_SOURCE_DIR "/configs/zoo/llama2-70b.toml train.sequence_length=4096";
  for (const auto& [kv_heads, told] : {std::pair("64", "10.74 GB in bf16, 2621440 bytes per token"),
                                       {"8", "1.342 GB in bf16, 327680"},
                                       {"1", "0.1678 GB in bf16, 40960"}}) {
    const ShellResult r = run.ashlar(str_cat(words, " model.n_kv_heads=", kv_heads));
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.out.find(str_cat("KV cache of 4096 tokens: ", told)), std::string::npos) << r.out;
    EXPECT_EQ(r.out.find("windows"), std::string::npos) << r.out;
  }
  const ShellResult windows = run.ashlar(str_cat(words, " attn.window_cycle=[1024,-1]"));
  EXPECT_NE(windows.out.find("0.8389 GB of it within the windows"), std::string::npos) << windows.out;
}

TEST(Configs, ATinyTwinOfEachLearnsAndResumes) {
  const RunFixture run;
  for (const fs::path& file : config_files()) {
    const std::string text = run_shell("cat " + shell_quote(file.string())).out;
    const std::string own = text.find("dtype = \"bf16\"") != std::string::npos ? "bf16" : "fp32";
    for (const std::string& dtype :
         own == "fp32" ? std::vector<std::string>{own} : std::vector<std::string>{own, "fp32"}) {
      SCOPED_TRACE(str_cat(file.string(), " ", dtype));
      const std::string dir = str_cat(file.stem().string(), "-", dtype), words = "train " + twin(file, text, dtype);
      const ShellResult whole = run.ashlar(words + " train.steps=12 run.dir=" + dir);
      ASSERT_EQ(whole.code, 0) << whole.err;
      const auto losses = validation_losses(run, dir);
      ASSERT_EQ(losses.size(), 2u);
      // It starts at log(257) = 5.55; words of 26 letters repeat, so that twelve steps go far below.
      EXPECT_LT(losses[0], 5.3);
      EXPECT_LT(losses[1], losses[0] - 0.2);
      // Once more from the checkpoint of step 6: the same numbers.
      const auto rows = run.exact_metrics(dir);
      fs::remove_all(run.dir() / dir / "checkpoints/step-00000012");
      const ShellResult again = run.ashlar(words + " train.steps=12 run.dir=" + dir);
      ASSERT_EQ(again.code, 0) << again.err;
      EXPECT_NE(again.out.find("step-00000006 at step 6"), std::string::npos) << again.out;
      EXPECT_EQ(run.exact_metrics(dir), rows);
    }
  }
}

// As `ashlar zoo` says it: one command makes a published model small and trains it (tests/layouts has all of them).
TEST(Configs, ATinyTwinOfAPublishedModelTrains) {
  const RunFixture run;
  const ShellResult tiny = run.ashlar("zoo tiny gemma2-9b");
  ASSERT_EQ(tiny.code, 0) << tiny.err;
  const std::string words = tiny.out.substr(0, tiny.out.find('\n'));
  EXPECT_NE(words.find("attn.window_cycle=[16,-1]"), std::string::npos) << words;
  const ShellResult r = run.ashlar("train " ASHLAR_SOURCE_DIR "/configs/zoo/gemma2-9b.toml " + words +
                                   " data.path=data run.threads=1 run.dir=twin");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<double> losses = run.metric("twin", "loss");
  ASSERT_EQ(losses.size(), 30U);
  EXPECT_LT(losses.back(), losses.front() - 1);
}

// A training to start from is what the program carries, and the file of configs/start.
TEST(Configs, ATrainingToStartFromIsShown) {
  const RunFixture run;
  const ShellResult shown = run.ashlar("zoo start pythia-70m");
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out, run_shell("cat " ASHLAR_SOURCE_DIR "/configs/start/pythia-70m.toml").out);
  run.write("mine.toml", shown.out);
  EXPECT_NE(run.ashlar("params mine.toml").out.find("70426624  100.0%"), std::string::npos);
  EXPECT_NE(run.ashlar("zoo start").out.find("pythia-70m"), std::string::npos);
}

// The program, with the emulated device in the place of a GPU, trains with the CUDA kernels: the losses and gradient
// norms of the processor, and a run moves from one to the other.
TEST(Configs, ATinyTwinTrainsSlowlyOnTheEmulatedDevice) {
  const RunFixture run(ASHLAR_ON_EMULATOR);
  const fs::path file = ASHLAR_SOURCE_DIR "/configs/quickstart.toml";
  const std::string text = run_shell("cat " + shell_quote(file.string())).out;
  // Of bf16 a roundoff for either run.
  for (const auto& [dtype, bound] : {std::pair{"fp32", 2e-5}, {"bf16", 0x1p-7}}) {
    SCOPED_TRACE(dtype);
    const std::string words = str_cat("train ", twin(file, text, dtype), " train.steps=6 checkpoint.every=3");
    const std::string cpu = str_cat("cpu-", dtype), emulated = str_cat("emulated-", dtype);
    const ShellResult expected = run.ashlar(str_cat(words, " run.dir=", cpu));
    ASSERT_EQ(expected.code, 0) << expected.err;
    const ShellResult got = run.ashlar(str_cat(words, " run.device=cuda run.dir=", emulated));
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_NE(got.out.find("emulated device 0"), std::string::npos) << got.out;
    EXPECT_EQ(run.metric(emulated, "loss").size(), 6u);
    run.expect_same_metrics(emulated, cpu, bound);
    EXPECT_NE(run.exact_metrics(emulated), run.exact_metrics(cpu)) << "other kernels have other roundings";
    // On from the processor's checkpoint.
    fs::remove_all(run.dir() / cpu / "checkpoints/step-00000006");
    const ShellResult moved = run.ashlar(str_cat(words, " run.device=cuda run.dir=", cpu));
    ASSERT_EQ(moved.code, 0) << moved.err;
    EXPECT_NE(moved.out.find("step-00000003 at step 3"), std::string::npos) << moved.out;
    run.expect_same_metrics(cpu, emulated, bound);
  }
}

}  // namespace
}  // namespace ashlar::testing
