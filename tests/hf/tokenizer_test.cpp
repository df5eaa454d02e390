// The tokenizer of an imported folder: in the checkpoint, and out again.
#include <nlohmann/json.hpp>
#include <set>

#include "data/tokenizer/forms.h"
#include "launch/hf/export_folder.h"
#include "launch/hf/hf_checkpoint.h"
#include "parallel/checkpoint/reader.h"
#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::slurp;
using testing::spit;

const char* const kTemplate = "{% for m in messages %}{{ m['content'] }}{% endfor %}";

class HfTokenizer : public ::testing::Test {
 protected:
  HfTokenizer() : log_([this](std::string_view line) { said_ += line; }) {
    fs::create_directories(hub());
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy_file(testing::golden_dir("llama") / name, hub() / name);
  }
  fs::path hub() const { return dir_.path() / "hub"; }
  fs::path checkpoint() const { return dir_.path() / "ckpt"; }
  fs::path out() const { return dir_.path() / "out"; }
  static fs::path fixture(const std::string& name) {
    return fs::path(ASHLAR_SOURCE_DIR) / "tests/data/fixtures" / name;
  }
  void give(const std::string& file, const std::string& as) { fs::copy_file(fixture(file), hub() / as); }
  void export_it(const ExportOptions& options = {}) {
    mesh::LoneRank alone;
    export_checkpoint(checkpoint(), out(), options, log_, alone.mesh.control());
  }

  ashlar::testing::ScratchDir dir_;
  std::string said_;
  Log log_;
};

TEST_F(HfTokenizer, GoesThroughACheckpoint) {
  give("tokenizers/pythia_neox.json", "tokenizer.json");
  spit(hub() / "tokenizer_config.json",
       R"({"tokenizer_class": "GPTNeoXTokenizer", "eos_token": {"content": "<|endoftext|>", "lstrip": false},)"
       R"( "add_prefix_space": false, "clean_up_tokenization_spaces": true})");
  spit(hub() / "chat_template.jinja", kTemplate);
  // The same tokenizer in a form that is not read is not kept.
  spit(hub() / "vocab.json", "{}");
  spit(hub() / "merges.txt", "#version: 0.2\n");
  const auto before = data::open_tokenizer(hub().string());
  const ImportReport imported = import_to_checkpoint(hub(), checkpoint());
  EXPECT_EQ(imported.tokenizer, before->identity());
  checkpoint::CheckpointReader reader(checkpoint());
  EXPECT_EQ(data::tokenizer_from_json(reader.tokenizer_json())->hash(), before->hash());
  EXPECT_THAT(slurp(checkpoint() / "config.toml"), HasSubstr("data build TEXT --tokenizer " + hub().string()));

  export_it();
  EXPECT_EQ(slurp(out() / "tokenizer.json"), slurp(hub() / "tokenizer.json"));
  EXPECT_EQ(slurp(out() / "chat_template.jinja"), kTemplate);
  const auto config = nlohmann::json::parse(slurp(out() / "tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["eos_token"], "<|endoftext|>");
  EXPECT_EQ(config["clean_up_tokenization_spaces"], false);
  EXPECT_FALSE(config.contains("add_prefix_space"));
  const auto after = data::open_tokenizer(out().string());
  EXPECT_EQ(after->eod_id(), before->eod_id());
  EXPECT_EQ(after->encode("Some text, 12 of it."), before->encode("Some text, 12 of it."));
  EXPECT_TRUE(nlohmann::json::parse(slurp(out() / "generation_config.json")).contains("eos_token_id"));
}

TEST_F(HfTokenizer, OfSentencePieceComesOutAsTokenizerJson) {
  give("sentencepiece_bpe_identity/model.model", "tokenizer.model");
  spit(hub() / "tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  import_to_checkpoint(hub(), checkpoint());
  export_it();
  EXPECT_FALSE(fs::exists(out() / "tokenizer.model"));
  const auto before = data::open_tokenizer(hub().string()), after = data::open_tokenizer(out().string());
  for (const char* text :
       {"Some text, 12 of it.", "  two spaces", "\n\tlines\n\n", "caf\xc3\xa9 \xe4\xb8\x96\xe7\x95\x8c"}) {
    std::vector<int32_t> one, other;
    before->encode_with_template(text, one);
    after->encode_with_template(text, other);
    EXPECT_EQ(other, one) << text;
    EXPECT_EQ(after->decode(after->encode(text)), before->decode(before->encode(text))) << text;
  }
}

TEST_F(HfTokenizer, OfAKindThatIsNotSupportedStopsTheImport) {
  spit(hub() / "tokenizer.json", R"({"model": {"type": "WordPiece", "vocab": {"a": 0}}})");
  const Error error = testing::error_of([&] { import_to_checkpoint(hub(), checkpoint()); });
  EXPECT_EQ(error.code(), ExitCode::kInput);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("WordPiece"), HasSubstr("--no-tokenizer")));
  EXPECT_FALSE(fs::exists(checkpoint()));
  const ImportReport alone = import_to_checkpoint(hub(), checkpoint(), {.ignored_keys = {}, .tokenizer = false});
  EXPECT_EQ(alone.tokenizer, "");
  EXPECT_EQ(checkpoint::CheckpointReader(checkpoint()).tokenizer_json(), "");
}

TEST_F(HfTokenizer, WithMoreIdsThanTheModelIsSaid) {
  give("tokenizers/pythia_neox.json", "tokenizer.json");
  spit(hub() / "tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  const ImportReport imported = import_to_checkpoint(hub(), checkpoint());
  ASSERT_GT(data::open_tokenizer(hub().string())->vocab_size(), imported.config.model.vocab_size);
  EXPECT_THAT(imported.config.notes, ::testing::Contains(HasSubstr("the tokenizer has ids up to ")));
}

TEST_F(HfTokenizer, ThatLiesThereIsNotOverwritten) {
  give("tokenizers/pythia_neox.json", "tokenizer.json");
  import_to_checkpoint(hub(), checkpoint());
  fs::create_directories(out());
  spit(out() / "tokenizer.json", "mine");
  const Error error = testing::error_of([&] { export_it(); });
  EXPECT_EQ(error.code(), ExitCode::kInput);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("out/tokenizer.json' exists"), HasSubstr("--no-tokenizer")));
  export_it({.dtype = {}, .tokenizer = false});
  EXPECT_EQ(slurp(out() / "tokenizer.json"), "mine");
  EXPECT_FALSE(fs::exists(out() / "generation_config.json"));
}

/// What a killed export left, its tokenizer too, goes; a journal names no files elsewhere.
TEST_F(HfTokenizer, OfAKilledExportIsTakenAway) {
  give("tokenizers/pythia_neox.json", "tokenizer.json");
  import_to_checkpoint(hub(), checkpoint());
  fs::create_directories(out());
  spit(out() / "tokenizer.json", "half of");
  spit(out() / "notes.txt", "mine");
  spit(out() / ExportFolder::kJournalFile, "ashlar export 1, files: 1\ntokenizer.json\n");
  export_it();
  EXPECT_EQ(slurp(out() / "tokenizer.json"), slurp(hub() / "tokenizer.json"));
  EXPECT_EQ(slurp(out() / "notes.txt"), "mine");
  fs::remove(out() / "config.json");
  for (const char* forged : {"../hub/config.json", ".hidden", "model.safetensors"}) {
    spit(out() / ExportFolder::kJournalFile, str_cat("ashlar export 1, files: 1\n", forged, "\n"));
    EXPECT_THAT(testing::error_of([&] { export_it(); }).what(),
                HasSubstr("expected the journal that an interrupted export leaves"))
        << forged;
    EXPECT_TRUE(fs::exists(hub() / "config.json"));
  }
}

}  // namespace
}  // namespace ashlar::hf
