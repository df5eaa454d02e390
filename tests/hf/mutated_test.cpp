// Damaged files of a hub folder: an error of one line with code 2 or 3, in bounded time and memory.
#include "core/io/safetensors_model.h"
#include "tests/hf/hf_support.h"
#include "tests/support/mutate.h"

namespace ashlar::hf {
namespace {

using ::ashlar::testing::expect_bounded;

std::string whole_config(const char* folder) { return testing::slurp(testing::golden_dir(folder) / "config.json"); }

TEST(Mutated, ConfigJson) {
  expect_bounded(
      {.inputs = {whole_config("llama"), whole_config("gemma4"), whole_config("mpt"), whole_config("gpt_neo"),
                  whole_config("qwen2_yarn"), whole_config("phi3_longrope"), whole_config("exaone4")},
       .trials = 150},
      [](const std::string& text) { parse_hf_config(text, "config.json"); });
}

TEST(Mutated, GenerationConfig) {
  expect_bounded({.inputs = {R"({"bos_token_id": 1, "eos_token_id": [2, 32000], "top_p": 0.9})"}},
                 [](const std::string& text) { parse_generation_eos(text, "generation_config.json"); });
}

TEST(Mutated, SafetensorsFile) {
  const ashlar::testing::ScratchDir dir;
  const std::filesystem::path path = dir.path() / "model.safetensors";
  expect_bounded({.inputs = {testing::slurp(testing::golden_dir("gpt2") / "model.safetensors").substr(0, 6000),
                             testing::slurp(testing::golden_dir("mpt") / "model.safetensors")},
                  .codes = {ExitCode::kInput, ExitCode::kDamagedData}},
                 [&](const std::string& bytes) {
                   testing::spit(path, bytes);
                   io::SafetensorsReader{path};
                 });
}

TEST(Mutated, SafetensorsHeader) {
  const std::string file = testing::slurp(testing::golden_dir("gpt2") / "model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const auto begin = static_cast<int64_t>(8 + length), end = static_cast<int64_t>(file.size());
  expect_bounded({.inputs = {file.substr(8, length)}, .codes = {ExitCode::kDamagedData}},
                 [&](const std::string& text) { io::parse_safetensors_header(text, begin, end, "model.safetensors"); });
}

TEST(Mutated, Index) {
  const ashlar::testing::ScratchDir dir;
  std::filesystem::copy(testing::golden_dir("mpt") / "model.safetensors", dir.path() / "a.safetensors");
  std::string index = R"({"metadata": {"total_size": 1}, "weight_map": {)";
  const io::SafetensorsReader whole(dir.path() / "a.safetensors");
  for (const io::TensorEntry& tensor : whole.tensors())
    index += (index.ends_with('{') ? "\"" : ", \"") + tensor.name + "\": \"a.safetensors\"";
  index += "}}";
  expect_bounded({.inputs = {index}, .codes = {ExitCode::kInput, ExitCode::kDamagedData}},
                 [&](const std::string& text) {
                   testing::spit(dir.path() / "model.safetensors.index.json", text);
                   io::SafetensorsModel{dir.path()};
                 });
}

}  // namespace
}  // namespace ashlar::hf
