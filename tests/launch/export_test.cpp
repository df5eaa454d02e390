// Export of what training makes: the same numbers come back.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/strings.h"
#include "core/io/safetensors.h"
#include "launch/inference/decoder.h"
#include "launch/inference/model_loading.h"
#include "parallel/comm/bootstrap.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/sanitizers.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;

std::vector<double> logits_of(const std::filesystem::path& checkpoint) {
  comm::Bootstrap alone;
  Log log([](std::string_view) {});
  const inference::LoadedModel m =
      inference::load_model({.path = checkpoint, .dtype = "fp32", .threads = 1, .positions = 16}, alone, log);
  inference::Decoder decoder(*m.engine, 16, false);
  const int32_t text[] = {3, 14, 15, 9, 2, 6, 5, 3, 5, 8};
  return decoder.next_logits(text);
}

// nanoGPT's model has no biases and GPT-2 has: zeros are the same model, to the bit.
TEST(Export, AModelWithoutBiasesIsAGpt2WithZeros) {
  const RunFixture run;
  const std::string model =
      "train " ASHLAR_SOURCE_DIR
      "/configs/shakespeare-char.toml data.path=data run.threads=1 model.d_model=32 "
      "model.n_layers=2 model.n_heads=2 model.d_ff=64 train.sequence_length=16 train.global_batch=4 train.steps=8 "
      "schedule.warmup_steps=2 train.eval_sequences=8 init.std=0.2 run.dir=";
  for (const char* affine : {"scale", "none"}) {
    SCOPED_TRACE(affine);
    const std::string dir = affine;
    ASSERT_EQ(run.ashlar(model + dir + " norm.affine=" + affine).code, 0);
    const ShellResult exported = run.ashlar("export " + dir + " hf-" + dir);
    ASSERT_EQ(exported.code, 0) << exported.err;
    EXPECT_NE(exported.out.find("exported GPT2LMHeadModel"), std::string::npos) << exported.out;
    EXPECT_NE(exported.out.find("written as zeros"), std::string::npos) << exported.out;
    const ShellResult imported = run.ashlar("import hf-" + dir + " back-" + dir);
    ASSERT_EQ(imported.code, 0) << imported.err;
    const std::vector<double> before = logits_of(run.dir() / dir), after = logits_of(run.dir() / ("back-" + dir));
    ASSERT_GE(before.size(), 257U);
    EXPECT_NE(before[0], before[1]);
    ASSERT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i], after[i]) << i;
  }
}

TEST(Export, TheLongestContextOfALearnedTableIsItsRows) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=6 run.dir=r pos.type=learned norm.type=layernorm ffn.gated=false "
                       "ffn.act=gelu_tanh dropout.resid=0 dropout.attn=0")
                .code,
            0);
  const ShellResult r = run.ashlar("export r hf --max-positions 2048");
  EXPECT_EQ(r.code, kInput) << r.out;
  EXPECT_NE(r.err.find("--max-positions 2048: expected 16, the size of the model's table of learned positions"),
            std::string::npos)
      << r.err;
  EXPECT_FALSE(std::filesystem::exists(run.dir() / "hf/config.json"));
  EXPECT_EQ(run.ashlar("export r hf --max-positions 16").code, 0);
}

// Every file below `folder`, by its name.
std::map<std::string, std::string> files_of(const RunFixture& run, const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(run.dir() / folder))
    files[entry.path().filename()] = run.read(folder + "/" + entry.path().filename().string());
  return files;
}

const char* const kTrainTiny = "train tiny.toml train.steps=6 dropout.resid=0 dropout.attn=0";

TEST(Export, RanksWriteTheFilesThatOneWrites) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar(kTrainTiny).code, 0);
  const std::string sharded = " --max-shard-bytes 8KB";
  const std::pair<const char*, std::string> exports[] = {{"", "export run one --max-shard-bytes 0"},
                                                         {"", "export run default"},
                                                         {"", "export run s1" + sharded},
                                                         {"launch -np 2 ", "export run s2" + sharded},
                                                         {"launch -np 4 ", "export run s4" + sharded}};
  for (const auto& [launcher, words] : exports) {
    const ShellResult r = run.ashlar(launcher + words);
    ASSERT_EQ(r.code, 0) << words << r.err;
    EXPECT_EQ(r.out.find("exported "), r.out.rfind("exported ")) << "said once: " << r.out;
  }
  const auto one = files_of(run, "one"), s1 = files_of(run, "s1");
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "README.md"})
    EXPECT_TRUE(one.contains(name)) << name;
  EXPECT_EQ(one.size(), 6U) << "these and model.safetensors";
  EXPECT_EQ(files_of(run, "default"), one);
  ASSERT_GT(s1.size(), 6U) << "more files than ranks";
  EXPECT_TRUE(s1.contains("model.safetensors.index.json"));
  EXPECT_EQ(s1.at("config.json"), one.at("config.json"));
  EXPECT_EQ(files_of(run, "s2"), s1);
  EXPECT_EQ(files_of(run, "s4"), s1);
  for (const char* from : {"one", "s4"}) ASSERT_EQ(run.ashlar(str_cat("import ", from, " back-", from)).code, 0);
  EXPECT_EQ(files_of(run, "back-s4").at("weights-00000.safetensors"),
            files_of(run, "back-one").at("weights-00000.safetensors"));
  const std::vector<double> before = logits_of(run.dir() / "run"), after = logits_of(run.dir() / "back-s4");
  EXPECT_EQ(before, after);
}

TEST(Export, AnErrorOfAnyRankIsToldOnceAndNothingStays) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar(kTrainTiny).code, 0);
  const std::string weights = "run/checkpoints/step-00000006/weights-00000.safetensors";
  std::string bytes = run.read(weights);
  bytes[bytes.size() - 3] ^= 4;
  run.write(weights, bytes);
  for (const int ranks : {1, 3}) {
    // The checkpoint itself is named: of a run, an older one would be taken.
    const ShellResult r =
        run.ashlar(str_cat("launch -np ", ranks, " export run/checkpoints/step-00000006 hf/out --max-shard-bytes 8KB"));
    EXPECT_EQ(r.code, 3) << r.err;
    EXPECT_EQ(r.err.find("ashlar: "), r.err.rfind("ashlar: ")) << r.err;
    EXPECT_NE(r.err.find("weights-00000.safetensors"), std::string::npos) << r.err;
    EXPECT_FALSE(fs::exists(run.dir() / "hf"));
  }
  for (const char* size : {"-1", "5XB", "1.5GB", "''", "'5 GB'", "9223372036854775808", "10000000TB", "GB"}) {
    const ShellResult r = run.ashlar(str_cat("export run hf --max-shard-bytes=", size));
    EXPECT_EQ(r.code, kInput) << size;
    EXPECT_NE(r.err.find("ashlar: [export] option --max-shard-bytes = "), std::string::npos) << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  }
  const ShellResult r = run.ashlar("launch -np 2 export run hf --max-shard-bytes 5XB");
  EXPECT_EQ(r.code, kInput);
  EXPECT_EQ(r.err.find("ashlar: "), r.err.rfind("ashlar: ")) << r.err;
  EXPECT_FALSE(fs::exists(run.dir() / "hf"));
}

// A Hugging Face folder of a model with `vocab` ids, all weights the same.
void write_large_model(const fs::path& folder, int64_t vocab) {
  const fs::path golden = ASHLAR_SOURCE_DIR "/tests/reference/golden/llama";
  fs::create_directories(folder);
  std::ifstream in(golden / "config.json");
  nlohmann::json config = nlohmann::json::parse(in);
  config["vocab_size"] = vocab;
  std::ofstream(folder / "config.json") << config.dump();
  std::vector<io::TensorSpec> specs;
  const io::SafetensorsReader small(golden / "model.safetensors");
  for (io::TensorSpec spec : small.tensors()) {
    if (spec.name == "model.embed_tokens.weight" || spec.name == "lm_head.weight") spec.shape[0] = vocab;
    specs.push_back(spec);
  }
  io::SafetensorsWriter writer(folder / "model.safetensors", specs);
  for (const io::TensorSpec& spec : specs)
    writer.write(spec.name, std::vector<std::byte>(static_cast<size_t>(spec.num_bytes()), std::byte{0x3c}));
  writer.finish();
}

// The most memory that a command had at once, in bytes.
int64_t peak_of(const RunFixture& run, const std::string& words) {
  const pid_t pid = run.start(words, "log");
  int status = 0;
  rusage usage{};
  wait4(pid, &status, 0, &usage);
  EXPECT_EQ(status, 0) << run.read("log");
  return int64_t{usage.ru_maxrss} * 1024;
}

TEST(Export, MemoryIsAFewWindowsWhateverTheModel) {
  if (testing::under_address_sanitizer()) GTEST_SKIP() << "the address sanitizer keeps what is freed";
  const RunFixture run;
  int64_t peaks[2] = {}, bytes = 0;
  for (const int large : {0, 1}) {
    const std::string name = large == 1 ? "large" : "small";
    write_large_model(run.dir() / name, large == 1 ? 300'000 : 300);
    ASSERT_EQ(run.ashlar(str_cat("import ", name, " ckpt-", name)).code, 0);
    fs::remove_all(run.dir() / name);
    peaks[large] = peak_of(run, str_cat("export ckpt-", name, " hf-", name, " --max-shard-bytes 20MB"));
    bytes = static_cast<int64_t>(fs::file_size(run.dir() / ("ckpt-" + name) / "weights-00000.safetensors"));
  }
  std::cout << bytes / 1'000'000 << " MB of weights: " << (peaks[1] - peaks[0]) / 1'000'000
            << " MB more than for a small model\n";
  EXPECT_GT(bytes, 100'000'000);
  EXPECT_LT(peaks[1] - peaks[0], 48'000'000) << "three windows of 8 MiB, the writer's buffers";
}

}  // namespace
}  // namespace ashlar::testing
