// Exports to GGUF, read back by a reader of their own: names, shapes and values against the Hugging Face export.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/bf16.h"
#include "core/base/fp16.h"
#include "core/base/strings.h"
#include "core/io/safetensors_model.h"
#include "launch/gguf/gguf_file.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Reads a file by the format's description.
class GgufReader {
 public:
  struct Tensor {
    std::vector<uint64_t> extents;  ///< the contiguous one first
    uint32_t type = 0;
    uint64_t offset = 0;
  };

  explicit GgufReader(std::string bytes) : bytes_(std::move(bytes)) {
    EXPECT_EQ(bytes_.substr(0, 4), "GGUF");
    at_ = 4;
    EXPECT_EQ(take<uint32_t>(), 3U);
    const auto count = take<uint64_t>(), entries = take<uint64_t>();
    for (uint64_t i = 0; i < entries; ++i) {
      const std::string key = string();
      values[key] = value(take<uint32_t>());
      if (!elements.empty()) arrays[key] = std::exchange(elements, {});
    }
    for (uint64_t i = 0; i < count; ++i) {
      Tensor& tensor = tensors[string()];
      tensor.extents.resize(take<uint32_t>());
      for (uint64_t& extent : tensor.extents) extent = take<uint64_t>();
      tensor.type = take<uint32_t>();
      tensor.offset = take<uint64_t>();
      EXPECT_EQ(tensor.offset % 32, 0U);
    }
    data_ = (at_ + 31) / 32 * 32;
  }

  std::vector<float> floats(const std::string& name) const {
    const Tensor& tensor = tensors.at(name);
    uint64_t n = 1;
    for (const uint64_t extent : tensor.extents) n *= extent;
    std::vector<float> out(n);
    const char* from = bytes_.data() + data_ + tensor.offset;
    for (uint64_t i = 0; i < n; ++i) {
      if (tensor.type == 0) std::memcpy(&out[i], from + 4 * i, 4);
      if (tensor.type == 30) {
        BF16 value;
        std::memcpy(&value, from + 2 * i, 2);
        out[i] = static_cast<float>(value);
      }
      if (tensor.type == 8) {
        FP16 scale;
        std::memcpy(&scale, from + i / 32 * 34, 2);
        out[i] = static_cast<float>(scale) * static_cast<float>(static_cast<int8_t>(from[i / 32 * 34 + 2 + i % 32]));
      }
    }
    return out;
  }

  std::map<std::string, std::string> values;  ///< as text; of an array its length
  std::map<std::string, std::vector<std::string>> arrays;
  std::map<std::string, Tensor> tensors;

 private:
  template <typename T>
  T take() {
    T v{};
    std::memcpy(&v, bytes_.data() + at_, sizeof v);
    at_ += sizeof v;
    return v;
  }
  std::string string() {
    const auto n = take<uint64_t>();
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  std::string value(uint32_t type) {
    switch (type) {
      case 4: return str_cat(take<uint32_t>());
      case 5: return str_cat(take<int32_t>());
      case 6: return str_cat(take<float>());
      case 7: return take<uint8_t>() != 0 ? "true" : "false";
      case 8: return string();
      default: break;
    }
    EXPECT_EQ(type, 9U);
    const auto of = take<uint32_t>();
    const auto n = take<uint64_t>();
    elements.clear();
    for (uint64_t i = 0; i < n; ++i) elements.push_back(value(of));
    return str_cat(n, " of ", of);
  }

  std::string bytes_;
  std::vector<std::string> elements;  // of the last array
  size_t at_ = 0, data_ = 0;
};

class Gguf : public ::testing::Test {
 protected:
  void must(const std::string& words) const {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, 0) << words << "\n" << r.out << r.err;
  }
  void refused(const std::string& words, const std::string& what) const {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, kInput) << words << r.out << r.err;
    EXPECT_THAT(r.err, HasSubstr(what)) << words;
  }
  void import_golden(const std::string& name) const {
    must(str_cat("import ", shell_quote(ASHLAR_SOURCE_DIR "/tests/reference/golden/" + name), " ", name));
  }
  /// Imports a golden model with other values in its config.json as `scaled`.
  void import_changed(const std::string& name, const nlohmann::json& values) const {
    fs::remove_all(run_.dir() / "scaled");
    fs::copy(fs::path(ASHLAR_SOURCE_DIR "/tests/reference/golden") / name, run_.dir() / "scaled-files",
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    nlohmann::json config = nlohmann::json::parse(run_.read("scaled-files/config.json"));
    config.update(values);
    run_.write("scaled-files/config.json", config.dump());
    must("import scaled-files scaled");
    fs::remove_all(run_.dir() / "scaled-files");
  }
  void import_scaled(const std::string& name, const nlohmann::json& scaling) const {
    import_changed(name, {{"rope_parameters", nullptr}, {"rope_scaling", scaling}});
  }
  GgufReader exported(const std::string& checkpoint, const std::string& words = "") const {
    must(str_cat("export ", checkpoint, " out --format gguf ", words));
    GgufReader file(run_.read("out/model.gguf"));
    fs::remove_all(run_.dir() / "out");
    return file;
  }
  std::vector<float> golden(const std::string& model, const std::string& tensor) const {
    io::SafetensorsModel files(ASHLAR_SOURCE_DIR "/tests/reference/golden/" + model);
    std::vector<float> values(static_cast<size_t>(files.at(tensor).num_elems()));
    files.read(tensor, std::as_writable_bytes(std::span(values)));
    return values;
  }
  RunFixture run_;
};

TEST_F(Gguf, LlamaHasItsHalvesInPairs) {
  import_golden("llama");
  const GgufReader file = exported("llama", "--no-tokenizer");
  EXPECT_EQ(file.values.at("general.architecture"), "llama");
  EXPECT_EQ(file.values.at("tokenizer.ggml.model"), "none");
  EXPECT_EQ(file.floats("token_embd.weight"), golden("llama", "model.embed_tokens.weight"));
  EXPECT_EQ(file.floats("blk.1.ffn_down.weight"), golden("llama", "model.layers.1.mlp.down_proj.weight"));
  const std::vector<float> q = golden("llama", "model.layers.0.self_attn.q_proj.weight");
  const size_t width = std::stoul(file.values.at("llama.embedding_length")),
               head = std::stoul(file.values.at("llama.attention.key_length"));
  const std::vector<float> pairs = file.floats("blk.0.attn_q.weight");
  for (size_t row = 0; row < q.size() / width; ++row) {
    const size_t in_head = row % head, from = row - in_head + in_head / 2 + (in_head % 2) * (head / 2);
    for (size_t c = 0; c < width; ++c) ASSERT_EQ(pairs[row * width + c], q[from * width + c]) << row;
  }
}

TEST_F(Gguf, ScaledRotaryPositionsAreKeysOrDivisors) {
  import_golden("llama_linear");
  const GgufReader linear = exported("llama_linear", "--no-tokenizer");
  EXPECT_EQ(linear.values.at("llama.rope.scaling.type"), "linear");
  EXPECT_EQ(linear.values.at("llama.rope.scaling.factor"), "4");
  EXPECT_FALSE(linear.tensors.contains("rope_freqs.weight"));
  import_changed("gemma3", {{"query_pre_attn_scalar", 12}});  // llama.cpp has no other than head_dim
  EXPECT_EQ(exported("scaled", "--no-tokenizer").values.at("gemma3.rope.scaling.factor"), "8");

  // Llama 3.1's rule for the wavelength w of a pair: nothing below original / high, the factor above original / low.
  import_golden("llama3_rope");
  const GgufReader llama3 = exported("llama3_rope", "--no-tokenizer");
  EXPECT_FALSE(llama3.values.contains("llama.rope.scaling.type"));
  const std::vector<float> divisors = llama3.floats("rope_freqs.weight");
  const double dims = 2.0 * static_cast<double>(divisors.size());
  EXPECT_EQ(llama3.values.at("llama.rope.dimension_count"), str_cat(static_cast<int64_t>(dims)));
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double w = 2 * M_PI * std::pow(300.0, 2 * static_cast<double>(i) / dims), s = (24 / w - 1.5) / (5.0 - 1.5);
    const double expected = w < 24 / 5.0 ? 1 : w > 24 / 1.5 ? 6 : 1 / ((1 - s) / 6 + s);
    EXPECT_NEAR(divisors[i], expected, 1e-6 * expected) << i;
  }
}

TEST_F(Gguf, TransposedMatricesAndNormsThatStoreLessOne) {
  import_golden("gpt2");
  const GgufReader gpt2 = exported("gpt2", "--no-tokenizer");
  const std::vector<float> stored = golden("gpt2", "transformer.h.0.mlp.c_fc.weight"),
                           written = gpt2.floats("blk.0.ffn_up.weight");
  const std::vector<uint64_t> extents = gpt2.tensors.at("blk.0.ffn_up.weight").extents;
  for (size_t in = 0; in < extents[0]; ++in)
    for (size_t out = 0; out < extents[1]; ++out)
      ASSERT_EQ(written[out * extents[0] + in], stored[in * extents[1] + out]);
  EXPECT_EQ(gpt2.floats("blk.0.attn_qkv.bias"), golden("gpt2", "transformer.h.0.attn.c_attn.bias"));
  import_golden("qwen3");
  EXPECT_EQ(exported("qwen3", "--no-tokenizer").floats("blk.0.attn_q_norm.weight"),
            golden("qwen3", "model.layers.0.self_attn.q_norm.weight"));
}

TEST_F(Gguf, TypesRoundAsTheySay) {
  must(
      "train tiny.toml train.steps=2 schedule.warmup_steps=1 dropout.resid=0 dropout.attn=0 model.d_ff=96 "
      "model.d_model=64 "
      "run.dtype=fp32");
  const GgufReader exact = exported("run"), half = exported("run", "--dtype bf16"),
                   blocks = exported("run", "--dtype q8_0");
  const std::string name = "blk.0.ffn_up.weight";
  const std::vector<float> x = exact.floats(name), h = half.floats(name), q = blocks.floats(name);
  EXPECT_EQ(half.tensors.at(name).type, 30U);
  EXPECT_EQ(blocks.tensors.at(name).type, 8U);
  EXPECT_EQ(blocks.tensors.at("output_norm.weight").type, 0U);
  ASSERT_EQ(x.size(), q.size());
  bool rounded = false;
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(h[i], static_cast<float>(BF16(x[i])));
    float largest = 0;
    for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) largest = std::max(largest, std::abs(x[j]));
    // Half a step, and the rounding of the scale to fp16.
    ASSERT_LE(std::abs(q[i] - x[i]), largest / 127 * 0.5F + std::abs(x[i]) * 0x1p-10F);
    rounded |= q[i] != x[i];
  }
  EXPECT_TRUE(rounded);
  EXPECT_EQ(exact.values.at("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_EQ(exact.values.at("tokenizer.ggml.tokens"), "257 of 8");
  EXPECT_EQ(exact.values.at("tokenizer.ggml.eos_token_id"), "256");
}

TEST_F(Gguf, SentencePieceModelsOfBpeHaveScores) {
  must("tokenizer train text.txt --out pieces --kind sentencepiece-bpe --vocab-size 320");
  must("data build text.txt --out words --tokenizer pieces");
  const std::string train =
      "train tiny.toml train.steps=1 schedule.warmup_steps=1 dropout.resid=0 dropout.attn=0 vocab.pad_to=32 ";
  must(train + "data.path=words run.dir=words-run");
  const GgufReader file = exported("words-run");
  EXPECT_EQ(file.values.at("tokenizer.ggml.model"), "llama");
  EXPECT_EQ(file.values.at("tokenizer.ggml.add_space_prefix"), "true");
  EXPECT_EQ(file.values.at("tokenizer.ggml.add_bos_token"), "false");
  const std::vector<std::string>&texts = file.arrays.at("tokenizer.ggml.tokens"),
        &kinds = file.arrays.at("tokenizer.ggml.token_type"), &scores = file.arrays.at("tokenizer.ggml.scores");
  ASSERT_EQ(texts.size(), 320U);
  ASSERT_EQ(scores.size(), 320U);
  const auto byte = std::ranges::find(texts, "<0x0A>") - texts.begin();
  EXPECT_EQ(kinds.at(static_cast<size_t>(byte)), "6");
  EXPECT_EQ(kinds.at(std::stoul(file.values.at("tokenizer.ggml.unknown_token_id"))), "2");
  // Merges are tried by falling scores: of the tokens of several characters, the first learned has the largest.
  std::vector<double> merged;
  for (size_t i = 0; i < texts.size(); ++i)
    if (kinds[i] == "1" && std::stod(scores[i]) > -200) merged.push_back(std::stod(scores[i]));
  ASSERT_GT(merged.size(), 10U);
  EXPECT_TRUE(std::ranges::is_sorted(merged, std::greater<>()));
  must("tokenizer train text.txt --out likely --kind sentencepiece-unigram --vocab-size 280");
  must("data build text.txt --out likely-data --tokenizer likely");
  must(train + "data.path=likely-data run.dir=likely-run");
  refused("export likely-run out2 --format gguf", "the tokenizer is a SentencePiece model of the type Unigram");
}

TEST_F(Gguf, WhatTheFormatLacksIsRefused) {
  must("train tiny.toml train.steps=1 schedule.warmup_steps=1 dropout.resid=0 dropout.attn=0");
  must("export run out --format gguf");
  refused("export run out --format gguf --no-card", "an export overwrites nothing");
  refused("export run out2 --format gguf --dtype fp16", "expected one of fp32, bf16, q8_0");
  import_golden("gpt_neox");
  refused("export gpt_neox out2 --format gguf", "expected one of LlamaForCausalLM");
  import_scaled("llama", {{"rope_type", "longrope"},
                          {"original_max_position_embeddings", 4},
                          {"short_factor", std::vector<double>(6, 1)},
                          {"long_factor", std::vector<double>(6, 2)}});
  refused("export scaled out2 --format gguf", "llama.cpp's llama expects linear, llama3 or none");
  import_scaled("qwen3", {{"rope_type", "llama3"},
                          {"factor", 4},
                          {"low_freq_factor", 1},
                          {"high_freq_factor", 4},
                          {"original_max_position_embeddings", 4}});
  refused("export scaled out2 --format gguf", "of the type llama3: llama.cpp's qwen3 expects linear or none");
  must("data build text.txt --out letters --tokenizer characters");
  must(
      "train tiny.toml train.steps=1 schedule.warmup_steps=1 dropout.resid=0 dropout.attn=0 data.path=letters "
      "run.dir=letters-run");
  refused("export letters-run out2 --format gguf", "the tokenizer ");
  EXPECT_FALSE(fs::exists(run_.dir() / "out2"));
}

TEST_F(Gguf, FoldersHaveAModelCard) {
  must("train tiny.toml train.steps=2 schedule.warmup_steps=1");
  must("export run hub");
  const std::string card = run_.read("hub/README.md");
  EXPECT_THAT(card, HasSubstr("| steps | 2 of 2 |"));
  EXPECT_THAT(card, HasSubstr("validation loss"));
  EXPECT_THAT(card, HasSubstr("| dataset | data |"));
  EXPECT_THAT(card, HasSubstr("[model]"));
  for (const char* with_paths : {"[run]", "[data]"}) EXPECT_THAT(card, ::testing::Not(HasSubstr(with_paths)));
  must("export run plain --no-card");
  EXPECT_FALSE(fs::exists(run_.dir() / "plain/README.md"));
  must("import hub again");
  must("export again hub2");
  EXPECT_THAT(run_.read("hub2/README.md"), HasSubstr("were imported and not trained"));
}

}  // namespace
}  // namespace ashlar::testing
