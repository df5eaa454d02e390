// Files of other programs that are not what they should be, each through the real program: one clear line on standard
// error, the documented exit code, and nothing left behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;

struct BadFile {
  const char* name;
  std::string prepare;  ///< a shell script
  const char* command;
  int code;
  std::vector<const char*> words;  ///< all of them in the line
};

std::set<std::string> entries(const fs::path& dir) {
  std::set<std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) all.insert(entry.path().string());
  return all;
}

void expect_files_refused(const std::vector<BadFile>& rows) {
  for (const BadFile& row : rows) {
    SCOPED_TRACE(row.name);
    const ScratchDir dir;
    const std::string there = "cd " + shell_quote(dir.path().string()) + "\n";
    const ShellResult prepared = run_shell(there + "set -e\n" + row.prepare);
    ASSERT_EQ(prepared.code, 0) << prepared.err;
    const std::set<std::string> before = entries(dir.path());
    const ShellResult r = run_shell(str_cat(there, shell_quote(ASHLAR_BINARY), " ", row.command));
    EXPECT_EQ(r.code, row.code) << r.out << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    EXPECT_TRUE(r.err.starts_with("ashlar: [") && r.err.ends_with('\n')) << r.err;
    for (const char* word : row.words)
      EXPECT_NE(r.err.find(word), std::string::npos) << "no `" << word << "` in " << r.err;
    EXPECT_EQ(entries(dir.path()), before) << "something was left behind";
  }
}

/// A folder `m` of vectors with lines of its config.json replaced, as `sed` is told.
std::string model(const char* folder, const std::string& sed) {
  return str_cat("cp -r ", shell_quote(str_cat(ASHLAR_SOURCE_DIR, "/tests/reference/golden/", folder)), " m && sed -i ",
                 shell_quote(sed), " m/config.json\n");
}

/// `m/tokenizer.json` of this model beside `text.txt`.
std::string tokenizer(const std::string& model) {
  return str_cat("mkdir -p m && echo some text >text.txt && echo ",
                 shell_quote(R"({"version": "1.0", "added_tokens": [{"id": 4, "content": "<s>", "special": true,
                    "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}], "normalizer": null,
                    "pre_tokenizer": null, "post_processor": null, "decoder": null, "model": )" +
                             model + "}"),
                 " >m/tokenizer.json\n");
}

TEST(BadFiles, OfTexts) {
  expect_files_refused({
      {"gzip that ends too early",
       "seq 20000 | gzip >whole.gz && head -c 3000 whole.gz >text.gz",
       "data build text.gz --out o",
       kInput,
       {"text.gz is truncated", "byte 3000"}},
      {"a picture among texts",
       "mkdir texts && echo text >texts/a.txt && printf '\\211PNG\\r\\n\\032\\n\\0\\1\\2' >texts/b.png",
       "data build texts/a.txt texts/b.png --out o",
       kInput,
       {"b.png", "PNG"}},
      {"ids of another vocabulary",
       "printf '\\1\\0\\377\\177' >ids.bin",
       "data build ids.bin --out o",
       kInput,
       {"ids.bin: token 1", "id 32767", "vocabulary of 257"}},
      {"JSON that is neither lines nor an array",
       "printf '{\\n \"text\": \"a\"\\n}\\n' >a.json",
       "data build a.json --out o",
       kInput,
       {"[input] a.json holds a JSON object over several lines", "--format text"}},
      {"the same for a tokenizer",
       "printf '{\\n \"text\": \"a\"\\n}\\n' >a.json",
       "tokenizer train a.json --out o",
       kInput,
       {"[input] a.json holds a JSON object over several lines", "--format text"}},
      {"one file under two names",
       "mkdir in && echo text >in/a.txt && ln -s in/a.txt b.txt",
       "data build in b.txt --out o",
       kInput,
       {"b.txt is an input twice: it is the same file as in/a.txt"}},
      {"a zstd window of 256 MiB",
       "printf '\\050\\265\\057\\375\\0\\220\\011\\0\\0a' >a.zst",
       "data build a.zst --out o",
       kInput,
       {"a.zst needs a zstd window of 256 MiB", "--long=27"}},
      {"a pointer of git-lfs",
       "printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:0\\nsize 5\\n' >a.txt",
       "data build a.txt --out o",
       kInput,
       {"a.txt is a pointer of git-lfs", "git lfs pull"}},
      {"a line that is no JSON",
       "printf '{\"text\":\"a\"}\\n{\"text\":\"b\"\\n' >a.jl",
       "data build a.jl --out o",
       kInput,
       {"a.jl, line 2", "--bad-lines skip"}},
      {"an unknown policy",
       "echo text >a.txt",
       "data build a.txt --out o --special-tokens keep",
       kInput,
       {"--special-tokens = 'keep': expected one of text, parse, refuse"}},
  });
}

TEST(BadFiles, WhatIsLeftOutIsCounted) {
  const ScratchDir dir;
  const auto ashlar = [&](const std::string& words) {
    return run_shell(str_cat("cd ", shell_quote(dir.path().string()), " && ", shell_quote(ASHLAR_BINARY), " ", words));
  };
  ASSERT_EQ(
      run_shell(str_cat("cd ", shell_quote(dir.path().string()),
                        " && mkdir -p in/.git && echo x >in/.git/x && printf '{\"text\":\"a\"}\\nno\\n' >in/a.jsonl"))
          .code,
      0);
  const ShellResult built = ashlar("data build in --out o --bad-lines skip --validation 0");
  EXPECT_EQ(built.code, 0) << built.err;
  EXPECT_NE(built.out.find("  1 bad documents left out\n"), std::string::npos) << built.out;
  EXPECT_NE(built.out.find("  1 hidden files left out (--include-hidden includes them)\n"), std::string::npos)
      << built.out;
  const ShellResult inspected = ashlar("data inspect o --tokens 0");
  EXPECT_EQ(inspected.code, 0) << inspected.err;
  EXPECT_NE(inspected.out.find("--bad-lines skip: 1 documents left out"), std::string::npos) << inspected.out;
  EXPECT_EQ(inspected.out.find("first 0"), std::string::npos) << inspected.out;
  EXPECT_EQ(inspected.out.find("as text"), std::string::npos) << inspected.out;
}

TEST(BadFiles, OfTokenizers) {
  expect_files_refused({
      {"of a kind that is not supported",
       tokenizer(R"({"type": "WordPiece", "unk_token": "a", "vocab": {"a": 0}})"),
       "data build text.txt --out o --tokenizer m",
       kInput,
       {"tokenizer.json: ", "model.type = \"WordPiece\": not supported"}},
      {"merges of what is no token",
       tokenizer(R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": ["a b", "ab d"]})"),
       "data build text.txt --out o --tokenizer m",
       kInput,
       {"tokenizer.json: ", "model.merges[1] names 'd', which is not a token of vocab"}},
      {"beside a model",
       model("llama", "") + tokenizer(R"({"type": "WordPiece", "unk_token": "a", "vocab": {"a": 0}})"),
       "import m o",
       kInput,
       {"WordPiece", "--no-tokenizer"}},
  });
}

TEST(BadFiles, OfModels) {
  expect_files_refused({
      {"rotary bases that contradict each other",
       model("llama", R"(s/"rope_scaling": null/"rope_parameters": {"rope_type": "default", "rope_theta": 20000.0}/)"),
       "import m o",
       kInput,
       {"m/config.json", "rope_theta = 10000.0: expected 20000, the value in rope_scaling or rope_parameters"}},
      {"scalings that contradict each other",
       model("llama", R"(s/"rope_scaling": null/"rope_scaling": {"type": "linear", "factor": 2.0}, )"
                      R"("rope_parameters": {"rope_type": "linear", "factor": 4.0}/)"),
       "import m o",
       kInput,
       {"m/config.json", "rope_scaling and rope_parameters are two names of one value, but differ"}},
      {"sizes that contradict each other",
       model("gpt2", R"(s/"n_embd": 48/"n_embd": 48, "hidden_size": 64/)"),
       "import m o",
       kInput,
       {"m/config.json", "n_embd = 48 and hidden_size = 64 are two names of one value"}},
      {"windows that contradict the list of layers",
       model("ministral", R"(s/"sliding_window": 7/"sliding_window": null/)"),
       "import m o",
       kInput,
       {"m/config.json", "layer_types", "has sliding attention, but sliding_window is not set"}},
      {"weights of other heads than the windowed model's",
       model("mistral", R"(s/"head_dim": 6/"head_dim": 8/)"),
       "import m o",
       kInput,
       {"'model.layers.0.self_attn.q_proj.weight' is [30,30], expected [40,30]"}},
      {"weights of another latent of keys and values",
       model("minicpm3", R"(s/"kv_lora_rank": 10/"kv_lora_rank": 12/)"),
       "import m o",
       kInput,
       {"'model.layers.0.self_attn.kv_a_proj_with_mqa.weight' is [14,30], expected [16,30]",
        "'model.layers.0.self_attn.kv_b_proj.weight' is [65,10], expected [65,12]"}},
      {"queries without the latent that their weights have",
       model("minicpm3", R"(s/"q_lora_rank": 14/"q_lora_rank": null/)"),
       "import m o",
       kInput,
       {"missing: 'model.layers.0.self_attn.q_proj.weight'",
        "unknown: 'model.layers.0.self_attn.q_a_layernorm.weight'"}},
      {"weights of a class that is not supported",
       model("llama", R"(s/LlamaForCausalLM/JambaForCausalLM/; s/"llama"/"jamba"/)"),
       "import m o",
       kInput,
       {"'JambaForCausalLM' is not supported; expected a model of one of the classes"}},
      {"weights without an expert",
       model("mixtral", R"(s/"num_local_experts": 4/"num_local_experts": 5/)"),
       "import m o",
       kInput,
       {"missing: 'model.layers.0.block_sparse_moe.experts.4.w1.weight'",
        "'model.layers.0.block_sparse_moe.gate.weight' is [4,24], expected [5,24]"}},
      {"weights cut off",
       model("mistral", "") + "head -c 40000 m/model.safetensors >w && mv w m/model.safetensors",
       "import m o",
       kDamaged,
       {"m/model.safetensors", "truncated"}},
  });
}

/// A shell line that leaves a git-lfs pointer where a file was.
std::string pointer(const char* file) {
  return str_cat("printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%064d\\nsize 4096\\n' 1 >", file,
                 "\n");
}

TEST(BadFiles, OfHubFolders) {
  const std::string nested = "repeated() { head -c 100000 /dev/zero | tr '\\0' \"$1\"; }\n";
  const auto only = [](const char* file) { return str_cat("mkdir m && touch m/", file, "\n"); };
  expect_files_refused({
      {"a pointer for weights",
       model("llama", "") + pointer("m/model.safetensors"),
       "import m o",
       kInput,
       {"m/model.safetensors' is a git-lfs pointer", "git lfs pull"}},
      {"a pointer for a configuration",
       model("llama", "") + pointer("m/config.json"),
       "import m o",
       kInput,
       {"m/config.json' is a git-lfs pointer", "git lfs pull"}},
      {"a pointer for a tokenizer",
       model("llama", "") + pointer("m/tokenizer.json"),
       "import m o",
       kInput,
       {"m/tokenizer.json' is a git-lfs pointer", "git lfs pull"}},
      {"a pointer for a SentencePiece model",
       model("llama", "") + pointer("m/tokenizer.model"),
       "import m o",
       kInput,
       {"m/tokenizer.model' is a git-lfs pointer", "git lfs pull"}},
      {"a pointer for an index",
       model("llama", "") + "rm m/model.safetensors\n" + pointer("m/model.safetensors.index.json"),
       "import m o",
       kInput,
       {"index.json' is a git-lfs pointer", "git lfs pull"}},
      {"shards without an index",
       model("llama", "") + "mv m/model.safetensors m/model-00001-of-00002.safetensors",
       "import m o",
       kInput,
       {"'model-00001-of-00002.safetensors', but not model.safetensors.index.json"}},
      {"an adapter",
       only("adapter_config.json") + "touch m/adapter_model.safetensors",
       "import m o",
       kInput,
       {"holds an adapter (PEFT, LoRA)", "merge_and_unload"}},
      {"pickles",
       model("llama", "") + "rm m/*.safetensors; touch m/pytorch_model.bin",
       "import m o",
       kInput,
       {"'pytorch_model.bin': PyTorch pickle files", "save_pretrained"}},
      {"GGUF", only("model-q4.gguf"), "import m o", kInput, {"'model-q4.gguf': GGUF"}},
      {"nothing", "mkdir m", "import m o", kInput, {"'m' holds no weights"}},
      {"no folder", "true", "import m o", kInput, {"'m' does not exist"}},
      {"a file", "touch m", "import m o", kInput, {"'m' is a file"}},
      {"no configuration", model("llama", "") + "rm m/config.json", "import m o", kInput, {"but no config.json"}},
      {"to train from", only("model-q4.gguf"), "train --from m data.path=d", kInput, {"'model-q4.gguf': GGUF"}},
      {"a command that is no word of ours", "true", "frobnicate", kInput, {"'frobnicate'; see ashlar --help"}},
      {"an option that is no word of ours",
       "true",
       "import a b --frobnicate",
       kInput,
       {"'--frobnicate'; ashlar import --help lists all"}},
      {"a command mistyped", "true", "improt a b", kInput, {"did you mean import?"}},
      {"an option mistyped", "true", "import a b --no-tokeniser", kInput, {"did you mean --no-tokenizer?"}},
      {"a configuration of 100,000 levels",
       nested + model("llama", "") + "(printf '{\"a\":'; repeated '['; repeated ']'; printf '}') >m/config.json",
       "import m o",
       kInput,
       {"m/config.json", "nested deeper than"}},
      {"an index of 100,000 levels",
       nested + model("llama", "") +
           "rm m/model.safetensors; (printf '{\"weight_map\":'; repeated '['; repeated ']'; "
           "printf '}') >m/model.safetensors.index.json",
       "import m o",
       kDamaged,
       {"index.json", "nested deeper than"}},
      {"a header of 100,000 levels",
       nested + model("llama", "") +
           "(printf '\\101\\015\\003\\0\\0\\0\\0\\0'; printf '{'; repeated '['; repeated ']') "
           ">m/model.safetensors",
       "import m o",
       kDamaged,
       {"m/model.safetensors", "nested deeper than"}},
      {"a generation_config of 100,000 levels",
       nested + model("llama", "") +
           "(printf '{\"a\":'; repeated '['; repeated ']'; printf '}') >m/generation_config.json",
       "import m o",
       kInput,
       {"m/generation_config.json", "nested deeper than"}},
  });
}

}  // namespace
}  // namespace ashlar::testing
