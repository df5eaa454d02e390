// Bad inputs, each through the real program: one clear line on standard error, the documented exit code, nothing lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/base/hex.h"
#include "core/base/strings.h"
#include "core/io/checksum.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/damage.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;

const char* const kGolden = ASHLAR_SOURCE_DIR "/tests/reference/golden/llama";

// The folder in which rows run: datasets `data` (bytes) and `chars` (characters), a run of six steps on each (`good`,
// `charrun`) with checkpoints of steps 3 and 6, and what a row prepares. `good` is never written by a row.
class Bench {
 public:
  Bench() {
    must(
        "cp -r data copy-of-data && sed 's/warmup_steps = 5/warmup_steps = 1/; s/steps = 60/steps = 6/' tiny.toml "
        ">t.toml");
    must(binary() + " data build text.txt --out chars --tokenizer characters");
    must(binary() + " train t.toml run.dir=good");
    must(binary() + " train t.toml run.dir=charrun data.path=chars pos.type=learned");
  }
  ~Bench() { release(); }

  static std::string binary() { return shell_quote(ASHLAR_BINARY); }
  fs::path path(const std::string& file) const { return run_.dir() / file; }
  void write(const std::string& file, const std::string& text) const { run_.write(file, text); }
  std::string read(const std::string& file) const { return run_.read(file); }

  ShellResult shell(const std::string& script) const {
    return run_shell("cd " + shell_quote(run_.dir().string()) + "\n" + script);
  }
  void must(const std::string& script) const {
    const ShellResult r = shell(script);
    ASSERT_EQ(r.code, 0) << script << "\n" << r.out << r.err;
  }
  void copy(const std::string& from, const std::string& to) const {
    fs::remove_all(path(to));
    fs::copy(path(from), path(to), fs::copy_options::recursive);
  }
  // One bit of the byte at `share` of the file.
  void flip(const std::string& file, double share) const {
    const double size = static_cast<double>(fs::file_size(path(file)));
    flip_bit(path(file), 8 * static_cast<int64_t>(share * size) + 4);
  }
  void halve(const std::string& file) const { fs::resize_file(path(file), fs::file_size(path(file)) / 2); }
  void replace(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = read(file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << file << " has no " << from;
    write(file, text.replace(at, from.size(), to));
  }
  // A process that trains in `dir` until release().
  void occupy(const std::string& dir) {
    holder_ = run_.start("train t.toml run.dir=" + dir + " train.steps=100000000 checkpoint.every=0", dir + ".log");
    for (int i = 0; i < 3000 && run_.exact_metrics(dir).empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  void release() {
    if (holder_ == 0) return;
    kill(holder_, SIGKILL);
    RunFixture::wait_for(holder_);
    holder_ = 0;
  }
  // Every file below `dir` with its checksum.
  std::map<std::string, uint32_t> files(const std::string& dir) const {
    std::map<std::string, uint32_t> all;
    for (const auto& entry : fs::recursive_directory_iterator(path(dir))) {
      if (entry.is_regular_file()) all[entry.path().string()] = io::sum_file(entry.path()).crc32;
    }
    return all;
  }

 private:
  RunFixture run_;
  pid_t holder_ = 0;
};

using Prepare = std::function<void(Bench&)>;

struct BadInput {
  const char* name;
  Prepare prepare;     // null: nothing
  const char* before;  // shell words in front of the program: environment, limits
  const char* command;
  int code;
  std::vector<const char*> words;  // all of them in the line
  const char* kept = "good";       // a run whose newest good checkpoint must still evaluate
};

Prepare none() { return nullptr; }

void expect_one_line(const ShellResult& r, const std::vector<const char*>& words) {
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  EXPECT_EQ(r.err.rfind("ashlar: [", 0), 0u) << r.err;
  EXPECT_TRUE(r.err.ends_with('\n')) << r.err;
  for (const char* word : words) EXPECT_NE(r.err.find(word), std::string::npos) << "no `" << word << "` in " << r.err;
  for (const char* trace : {"terminate", "what():", "report this", "HDF5-DIAG", ".cpp"})
    EXPECT_EQ(r.err.find(trace), std::string::npos) << r.err;
}

void expect_inputs_refused(const std::vector<BadInput>& rows) {
  Bench bench;
  if (::testing::Test::HasFatalFailure()) return;
  const auto good = bench.files("good");
  ASSERT_GE(good.size(), 8u);
  std::map<std::string, bool> kept;
  for (const BadInput& row : rows) {
    SCOPED_TRACE(row.name);
    if (row.prepare) row.prepare(bench);
    if (::testing::Test::HasFatalFailure()) return;
    const ShellResult r = bench.shell(str_cat(row.before, "\n", Bench::binary(), " ", row.command));
    bench.release();
    EXPECT_EQ(r.code, row.code) << r.out << r.err;
    expect_one_line(r, row.words);
    EXPECT_EQ(bench.files("good"), good) << "a row wrote into the run that is there";
    if (row.kept == std::string("good") && kept["good"]) continue;  // its bytes are the same: evaluated once
    const ShellResult eval = bench.shell(str_cat(Bench::binary(), " eval ", row.kept, " --threads 1 --batches 20"));
    EXPECT_EQ(eval.code, 0) << row.kept << " is lost: " << eval.err;
    EXPECT_NE(eval.out.find("val_loss "), std::string::npos) << eval.out;
    EXPECT_EQ(eval.out.find("nan"), std::string::npos) << eval.out;
    kept[row.kept] = true;
  }
  std::cout << rows.size() << " bad inputs\n";
}

TEST(Errors, CommandLines) {
  expect_inputs_refused({
      {"unknown command", none(), "", "trian", kInput, {"[ashlar]", "trian", "did you mean train?"}},
      {"no configuration", none(), "", "train", kInput, {"[train]", "got 0", "usage: ashlar train CONFIG"}},
      {"two configurations", none(), "", "train t.toml t.toml", kInput, {"[train]", "got 2"}},
      {"a key without section",
       none(),
       "",
       "train t.toml lr=3",
       kInput,
       {"lr: unknown key; did you mean optimizer.lr?"}},
      {"a value of two lines", none(), "", "train t.toml 'run.dir=a\nb'", kInput, {"run.dir: expected a value on one"}},
      {"unknown option", none(), "", "train t.toml --restrat", kInput, {"--restrat", "did you mean --restart?"}},
      {"option without value", none(), "", "generate good --prompt", kInput, {"--prompt", "needs a value"}},
      {"option twice", none(), "", "generate good --tokens 3 --tokens 4", kInput, {"--tokens", "twice"}},
      {"unknown bench", none(), "", "bench gem", kInput, {"[bench]", "gemm, kernels", "got 'gem'"}},
      {"unknown data command", none(), "", "data biuld", kInput, {"[data]", "biuld", "build, inspect, verify"}},
      {"unknown key to explain", none(), "", "explain model.d_modle", kInput, {"model.d_modle", "model.d_model"}},
      {"temperature", none(), "", "generate good --temperature -1", kInput, {"--temperature = -1", "0 to 1000"}},
      {"temperature nan", none(), "", "generate good --temperature nan", kInput, {"--temperature = nan"}},
      {"top-p", none(), "", "generate good --top-p 1.5", kInput, {"--top-p = 1.5", "from 0 to 1"}},
      {"top-k", none(), "", "generate good --top-k -3", kInput, {"--top-k = -3"}},
      {"no tokens", none(), "", "generate good --tokens 0", kInput, {"--tokens = 0", "from 1"}},
      {"tokens with a unit", none(), "", "generate good --tokens 5x", kInput, {"--tokens = 5x", "whole number"}},
      {"tokens beyond 64 bits", none(), "", "generate good --tokens 99999999999999999999", kInput, {"--tokens = 999"}},
      {"prompt and ids", none(), "", "generate good --prompt a --ids 1", kInput, {"--prompt and --ids"}},
      {"ids no number", none(), "", "generate good --ids 1,x", kInput, {"--ids: x", "1,2,3"}},
      {"ids out of vocabulary", none(), "", "generate good --ids 1,257", kInput, {"257", "below 257"}},
      {"ids beyond 32 bits", none(), "", "generate good --ids 4294967297", kInput, {"--ids: 4294967297"}},
      {"ids beyond 64 bits", none(), "", "generate good --ids 99999999999999999999999", kInput, {"--ids: 999999"}},
      {"unknown dtype", none(), "", "generate good --dtype fp8", kInput, {"--dtype fp8", "bf16, fp32 or fp64"}},
      {"prompt of unknown characters",
       none(),
       "",
       "generate charrun --prompt 'the \xe2\x82\xac wall'",
       kInput,
       {"20ac"}},
      {"no such checkpoint", none(), "", "generate nowhere", kInput, {"nowhere", "give a checkpoint"}},
      {"not a checkpoint", none(), "", "generate text.txt", kInput, {"text.txt", "expected a checkpoint"}},
      {"a dataset for a checkpoint", none(), "", "eval data", kInput, {"data/manifest.json", "ashlar.dataset"}},
      {"no reader", none(), "exec >/dev/full", "generate good --tokens 3 --threads 1", kResource, {"[output]"}},
  });
}

TEST(Errors, Configurations) {
  const auto text = [](const char* toml) { return [toml](Bench& b) { b.write("bad.toml", toml); }; };
  expect_inputs_refused({
      {"no file", none(), "", "train none.toml", kInput, {"none.toml", "No such file", "configs/quickstart.toml"}},
      {"a folder", none(), "", "train data", kInput, {"data", "directory"}},
      {"syntax",
       text("[run]\ndtype = \"fp32\n[model]\n"),
       "",
       "params bad.toml vocab.size=9 model.d_model=8 "
       "model.n_layers=1 model.n_heads=1",
       kInput,
       {"bad.toml:2", "run.dtype"}},
      {"unknown key", none(), "", "train t.toml model.d_modle=3", kInput, {"model.d_modle", "mean model.d_model?"}},
      {"unknown section", none(), "", "train t.toml modle.d_model=3", kInput, {"modle.d_model", "model.d_model?"}},
      {"broken section",
       text("[run]\ndtype = \"fp32\"\n[model\nd_model = 3\n"),
       "",
       "train bad.toml",
       kInput,
       {"bad.toml:3", "[model"}},
      {"model of the zoo", none(), "", "zoo show gpt2-125m", kInput, {"gpt2-125m", "did you mean gpt2-124m"}},
      {"axis of the zoo", none(), "", "zoo uses norm.typ", kInput, {"norm.typ"}},
      {"words of the zoo", none(), "", "zoo tell gpt2-124m", kInput, {"tell gpt2-124m", "zoo --help"}},
      {"section to explain", none(), "", "explain rop", kInput, {"did you mean the section rope?"}},
      {"seed beyond 64 bits",
       none(),
       "",
       "generate good --seed 18446744073709551616",
       kInput,
       {"--seed = 18446744073709551616", "9223372036854775807"}},
      {"number with letters", none(), "", "eval good --batches 3x", kInput, {"--batches = 3x"}},
      {"token id beyond 32 bits", none(), "", "generate good --ids 4294967297", kInput, {"--ids: 4294967297"}},
      {"ranks twice", none(), "", "launch -np 4 -n 3 train t.toml", kInput, {"-np 4 and -n 3", "the same option"}},
      {"slots beyond reason",
       none(),
       "",
       "launch -np 4 --host a:99999999999999999999 train t.toml",
       kInput,
       {"--host 'a:99999999999999999999'", "whole number"}},
      {"eps that fp32 has not",
       none(),
       "",
       "train t.toml run.dir=new optimizer.eps=1e-60",
       kInput,
       {"optimizer.eps = 1e-60", "1.8e-22", "fp32"}},
      {"path that is not UTF-8",
       [](Bench& b) { b.must("ln -sfn data $'d\\xe9'"); },
       "",
       "train t.toml run.dir=new data.path=$'d\\xe9'",
       kInput,
       {"data.path = 'd\\xe9'", "UTF-8"}},
      {"wrong type", none(), "", "train t.toml model.d_model=wide", kInput, {"model.d_model", "'wide'", "an integer"}},
      {"empty", none(), "", "train t.toml train.steps=", kInput, {"train.steps = (empty)"}},
      {"heads do not divide", none(), "", "train t.toml model.n_heads=3 run.dir=new", kInput, {"model.n_heads", "16"}},
      {"micro-batch", none(), "", "train t.toml train.micro_batch=3", kInput, {"train.micro_batch = 3", "divisor"}},
      {"learning rate", none(), "", "train t.toml optimizer.lr=1e30", kInput, {"optimizer.lr", "100"}},
      {"no GPU", none(), "export CUDA_VISIBLE_DEVICES=", "train t.toml run.device=cuda", kInput, {"device = \"cpu\""}},
      {"window", none(), "", "train t.toml attn.window_cycle=[0] run.dir=new", kInput, {"window_cycle = [0]", "-1"}},
      {"parallel post-norm",
       none(),
       "",
       "train t.toml norm.placement=post block.topology=parallel run.dir=new",
       kInput,
       {"norm.placement = \"post\"",
        "expected \"pre\", the only placement that block.topology = \"parallel\" supports"}},
      {"Transformer-XL", none(), "", "train t.toml pos.type=xl_rel", kInput, {"xl_rel", "not supported"}},
      {"Adafactor", none(), "", "train t.toml optimizer.kind=adafactor", kInput, {"optimizer.kind", "not supported"}},
      {"another optimizer on resume",
       none(),
       "",
       "train t.toml run.dir=good optimizer.kind=lion",
       kInput,
       {"optimizer.kind = \"lion\"", "expected \"adamw\"", "run.dir"}},
      {"fixed key on resume",
       none(),
       "",
       "train t.toml run.dir=good model.d_ff=32",
       kInput,
       {"model.d_ff = 32", "expected 24", "run.dir"}},
      {"other seed on resume",
       none(),
       "",
       "train t.toml run.dir=good run.seed=4",
       kInput,
       {"run.seed = 4", "expected 3"}},
      {"vocabulary below the dataset's",
       none(),
       "",
       "train t.toml vocab.size=100",
       kInput,
       {"vocab.size = 100", "257"}},
      {"run directory is a file", none(), "", "train t.toml run.dir=text.txt", kInput, {"text.txt", "run.dir"}},
      {"run directory below a file", none(), "", "train t.toml run.dir=text.txt/x", kInput, {"text.txt/x", "run.dir"}},
      {"run directory not writable", none(), "", "train t.toml run.dir=/proc/ashlar/x", kInput, {"/proc/ashlar/x"}},
      {"run directory in use",
       [](Bench& b) { b.occupy("busy"); },
       "",
       "train t.toml run.dir=busy",
       kInput,
       {"another process", "busy", "run.dir"}},
  });
}

TEST(Errors, SeveralErrorsComeAtOnce) {
  const Bench bench;
  const ShellResult r = bench.shell(Bench::binary() + " train t.toml model.d_model=x train.stepz=3 optimizer.lr=-1 " +
                                    "data.path=nowhere model.n_heads=0");
  EXPECT_EQ(r.code, kInput);
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 5) << r.err;
  for (const char* word : {"model.d_model = 'x'", "train.steps?", "optimizer.lr", "no dataset at nowhere", "n_heads"})
    EXPECT_NE(r.err.find(word), std::string::npos) << "no " << word << " in " << r.err;
}

TEST(Errors, Datasets) {
  const auto on = [](const char* file, void (Bench::*damage)(const std::string&) const) {
    return [=](Bench& b) {
      b.copy("data", "d");
      (b.*damage)(file);
    };
  };
  const auto flipped = [](const char* file, double share) {
    return [=](Bench& b) {
      b.copy("data", "d");
      b.flip(file, share);
    };
  };
  const Prepare newer = [](Bench& b) {
    b.copy("data", "d");
    auto manifest = nlohmann::json::parse(b.read("d/manifest.json"));
    manifest["version"] = 99;
    manifest.erase("checksum");
    manifest["checksum"] = hex32(io::crc32(manifest.dump(1)));
    b.write("d/manifest.json", manifest.dump(1) + "\n");
  };
  // More characters than the 257 ids of `good`.
  const Prepare wide = [](Bench& b) {
    std::string text;
    for (int c = 0; c < 400; ++c)
      text += {static_cast<char>(0xE4), static_cast<char>(0x80 + c / 64), static_cast<char>(0x80 + c % 64)};
    for (int i = 0; i < 3; ++i) text += text;
    b.write("wide.txt", text);
    b.must(Bench::binary() + " data build wide.txt --out wide --tokenizer characters --overwrite");
  };
  const Prepare brief = [](Bench& b) {
    b.write("brief.txt", "stone laid");
    b.must(Bench::binary() + " data build brief.txt --out brief --validation 0");
  };
  const char* const train = "train t.toml data.path=d run.dir=fresh";
  expect_inputs_refused({
      {"missing", none(), "", "train t.toml data.path=nowhere", kInput, {"no dataset at nowhere", "ashlar data build"}},
      {"a folder of something else", none(), "", "train t.toml data.path=good", kInput, {"good", "manifest.json"}},
      {"truncated shard", on("d/train-00000.h5", &Bench::halve), "", train, kDamaged, {"train-00000.h5", "truncated"}},
      {"shard gone",
       [](Bench& b) {
         b.copy("data", "d");
         fs::remove(b.path("d/validation-00000.h5"));
       },
       "",
       train,
       kDamaged,
       {"validation-00000.h5", "missing"}},
      {"flipped bit in the train part", flipped("d/train-00000.h5", 0.6), "", train, kDamaged, {"train-00000.h5"}},
      {"flipped bit in the validation part",
       flipped("d/validation-00000.h5", 0.6),
       "",
       "eval good --data d",
       kDamaged,
       {"validation-00000.h5"}},
      {"manifest damaged", flipped("d/manifest.json", 0.5), "", train, kDamaged, {"d/manifest.json"}},
      {"manifest cut", on("d/manifest.json", &Bench::halve), "", train, kDamaged, {"manifest.json"}},
      {"manifest of a newer version", newer, "", train, kInput, {"manifest.json", "version 99"}},
      {"too short for a sequence",
       brief,
       "",
       "train t.toml data.path=brief run.dir=fresh",
       kInput,
       {"brief", "11 tokens", "train.sequence_length = 16"}},
      {"ids beyond the model", wide, "", "eval good --data wide", kInput, {"wide", "ids up to", "257"}},
      {"other tokenizer", none(), "", "eval good --data chars", kInput, {"tokenizer bytes", "characters"}},
      {"longer than learned positions",
       none(),
       "",
       "eval charrun --sequence-length 17",
       kInput,
       {"17", "16"},
       "charrun"},
      {"input missing", none(), "", "data build nowhere.txt --out o", kInput, {"nowhere.txt", "No such file"}},
      {"input empty",
       [](Bench& b) { b.write("empty.txt", ""); },
       "",
       "data build empty.txt --out o",
       kInput,
       {"empty.txt", "no text"}},
      {"tokens of another vocabulary",
       [](Bench& b) { b.write("ids.bin", std::string("\1\0\2\0\xff\x7f", 6)); },
       "",
       "data build ids.bin --out o",
       kInput,
       {"ids.bin: token 2 (byte 4) is id 32767", "vocabulary of 257", "--tokenizer"}},
      {"no UTF-8",
       [](Bench& b) { b.write("raw.txt", "one\ntwo \xff\n"); },
       "",
       "data build raw.txt --out o --tokenizer characters",
       kInput,
       {"raw.txt, line 2, byte offset 8", "UTF-8"}},
      {"no text field",
       [](Bench& b) { b.write("r.jsonl", "{\"text\": \"a\"}\n{\"body\": \"b\"}\n"); },
       "",
       "data build r.jsonl --out o",
       kInput,
       {"r.jsonl, line 2", "\"text\"", "body"}},
      {"no JSON",
       [](Bench& b) { b.write("x.jsonl", "{\"text\": \"a\"\n"); },
       "",
       "data build x.jsonl --out o",
       kInput,
       {"x.jsonl, line 1"}},
      {"output is a file", none(), "", "data build text.txt --out t.toml", kInput, {"t.toml"}},
      {"output holds another dataset",
       none(),
       "",
       "data build text.txt --out data --tokenizer characters",
       kInput,
       {"data", "--overwrite"}},
      {"unknown tokenizer",
       none(),
       "",
       "data build text.txt --out o --tokenizer bpe",
       kInput,
       {"bpe", "bytes, charac"}},
      {"no output", none(), "", "data build text.txt", kInput, {"--out"}},
      {"disk full", none(), "ulimit -f 40", "data build text.txt --out big", kResource, {"big/train-00000.h5"}},
  });
}

TEST(Errors, Checkpoints) {
  const auto damaged = [](const char* file, double share) {
    return [=](Bench& b) {
      b.copy("good", "copy");
      b.flip(str_cat("copy/checkpoints/step-00000006/", file), share);
    };
  };
  const Prepare all_damaged = [](Bench& b) {
    b.copy("good", "copy");
    for (const char* step : {"3", "6"}) b.flip(str_cat("copy/checkpoints/step-0000000", step, "/manifest.json"), 0.4);
  };
  const Prepare newer = [](Bench& b) {
    b.copy("good", "copy");
    const std::string file = "copy/checkpoints/step-00000006/manifest.json";
    b.replace(file, "\"version\": 1", "\"version\": 99");
    const std::string text = b.read(file), body = text.substr(text.find('\n') + 1);
    b.write(file, "{\"checksum\":\"" + hex32(io::crc32(body)) + "\",\n" + body);
  };
  const Prepare copy = [](Bench& b) { b.copy("good", "copy"); };
  const char* const six = "eval copy/checkpoints/step-00000006 --threads 1";
  expect_inputs_refused({
      {"none to begin from", none(), "", "train t.toml run.dir=new run.init_from=nowhere", kInput, {"nowhere"}},
      {"of another model",
       none(),
       "",
       "train t.toml run.dir=new2 run.init_from=good model.d_ff=32",
       kInput,
       {"model.d_ff = 32", "expected 24", "run.init_change"}},
      {"of another vocabulary",
       none(),
       "",
       "train t.toml run.dir=new3 run.init_from=good data.path=chars",
       kInput,
       {"data.path = chars", "the tokenizer differs", "data.allow_change"}},
      {"damaged weights",
       damaged("weights-00000.safetensors", 0.7),
       "",
       six,
       kDamaged,
       {"weights-00000.safetensors"},
       "copy"},
      {"damaged header of weights",
       damaged("weights-00000.safetensors", 0.001),
       "",
       six,
       kDamaged,
       {"weights-00000.safetensors"},
       "copy"},
      {"damaged manifest",
       damaged("manifest.json", 0.6),
       "",
       "generate copy/checkpoints/step-00000006 --tokens 2",
       kDamaged,
       {"manifest.json", "damaged"},
       "copy"},
      {"weights gone",
       [](Bench& b) {
         b.copy("good", "copy");
         fs::remove(b.path("copy/checkpoints/step-00000006/weights-00000.safetensors"));
       },
       "",
       six,
       kDamaged,
       {"weights-00000.safetensors", "missing"},
       "copy"},
      {"all damaged",
       all_damaged,
       "",
       "train t.toml run.dir=copy",
       kDamaged,
       {"copy/checkpoints", "all 2 are damaged"}},
      {"of a newer version", newer, "", six, kInput, {"manifest.json", "version 99"}},
      {"disk full",
       copy,
       "ulimit -f 40",
       "train t.toml run.dir=copy train.steps=9",
       kResource,
       {"step-00000009", "ulimit -f"},
       "copy"},
      {"disk full for metrics and the last save",
       copy,
       "ulimit -f 16",
       "train t.toml run.dir=copy train.steps=90 checkpoint.every=0",
       kResource,
       {"the last save failed", "weights-00000.safetensors"},
       "copy"},
      {"decay without bound",
       copy,
       "",
       "train t.toml run.dir=copy train.steps=60 "
       "optimizer.lr=100 optimizer.weight_decay=10 optimizer.clip=0 checkpoint.every=1",
       kNonFinite,
       {"step ", "not finite", ".weight"},
       "copy"},
      {"import of no model", none(), "", "import data hf-out", kInput, {"'data' holds no weights"}},
      {"import of an unknown class",
       [](Bench& b) {
         b.must(str_cat("mkdir mamba && cp ", kGolden, "/* mamba/"));
         b.replace("mamba/config.json", "LlamaForCausalLM", "MambaForCausalLM");
       },
       "",
       "import mamba hf-out",
       kInput,
       {"MambaForCausalLM", "expected a model of one of the classes", "Qwen2ForCausalLM"}},
      {"import with a tensor missing",
       [](Bench& b) {
         b.must(str_cat("mkdir deep && cp ", kGolden, "/* deep/"));
         b.replace("deep/config.json", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4");
       },
       "",
       "import deep hf-out",
       kInput,
       {"missing", "model.layers.3.input_layernorm.weight"}},
      {"import of a truncated file",
       [](Bench& b) {
         b.must(str_cat("mkdir cut && cp ", kGolden, "/* cut/"));
         b.halve("cut/model.safetensors");
       },
       "",
       "import cut hf-out",
       kDamaged,
       {"cut/model.safetensors", "truncated"}},
      {"import over something",
       [](Bench& b) { b.must(str_cat("cp -r ", kGolden, " llama")); },
       "",
       "import llama data",
       kInput,
       {"data", "empty directory"}},
      {"export that no class has",
       [](Bench& b) { b.must(Bench::binary() + " train t.toml run.dir=odd block.topology=parallel pos.type=none"); },
       "",
       "export odd hf-out",
       kInput,
       {"block.topology = parallel", "pos.type = none"},
       "odd"},
      {"export to an unknown class", none(), "", "export good hf-out --class BertModel", kInput, {"BertModel"}},
      {"export over a file",
       [](Bench& b) { b.must(Bench::binary() + " train t.toml run.dir=plain dropout.resid=0 dropout.attn=0"); },
       "",
       "export plain t.toml",
       kInput,
       {"t.toml"},
       "plain"},
  });
}

// Runs whose loss and gradients are finite to the end, while what a checkpoint would hold is not.
TEST(Errors, NonFiniteStateIsNotSaved) {
  struct {
    const char *name, *options, *tensors;
  } const kLost[] = {
      // So short a vector before the first norm that the square of its gradient, not the gradient, is beyond fp32.
      {"moments", "init.scheme=xavier init.std=1e-22 norm.eps=1e-43 optimizer.clip=0",
       "the second moments of embed.tokens.weight"},
  };
  const RunFixture run;
  for (const auto& lost : kLost) {
    SCOPED_TRACE(lost.name);
    const ShellResult r = run.ashlar(
        str_cat("train tiny.toml train.steps=3 schedule.warmup_steps=1 checkpoint.every=0 run.dir=", lost.name, " ",
                lost.options));
    EXPECT_EQ(r.code, kNonFinite) << r.out << r.err;
    expect_one_line(r, {"step 3", lost.tensors, "not finite after the update", "nothing was saved"});
    std::istringstream rows(run.read(str_cat(lost.name, "/metrics.jsonl")));
    int finite = 0;
    for (std::string line; std::getline(rows, line);) {
      const auto row = nlohmann::json::parse(line);
      if (!row.contains("loss")) continue;
      EXPECT_TRUE(row["loss"].is_number() && row["grad_norm"].is_number()) << line;
      ++finite;
    }
    EXPECT_EQ(finite, 3) << "the step itself must have found nothing";
    const ShellResult eval = run.ashlar(str_cat("eval ", lost.name));
    EXPECT_EQ(eval.code, kInput) << "a checkpoint is there: " << eval.out << eval.err;
  }
}

}  // namespace
}  // namespace ashlar::testing
