// What a file is, by its bytes: prose, JSON lines, a JSON array; and what is left out of it or refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "data/build/dataset_builder.h"
#include "data/build/train_tokenizer.h"
#include "data/read/token_dataset.h"
#include "data/shards/fingerprint.h"
#include "data/sources/json_array.h"
#include "data/sources/text_shape.h"
#include "data/tokenizer/utf8_repair.h"
#include "tests/data/dataset_fixture.h"
#include "tests/data/input_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class InputShape : public ::testing::Test {
 protected:
  BuildOptions options(const std::vector<std::string>& inputs) {
    BuildOptions o;
    o.inputs = inputs;
    o.out = dir_.file(str_cat("set", sets_++));
    o.threads = 2;
    o.block_bytes = 100;
    o.validation = 0;
    return o;
  }
  std::string put(const std::string& name, const std::string& bytes) { return put_file(dir_, name, bytes); }
  std::string error_of(const BuildOptions& o) { return build_error(o); }
  static std::string text_of(const std::string& directory) {
    TokenDataset dataset(directory);
    std::vector<int32_t> ids(static_cast<size_t>(dataset.tokens(Part::kTrain)));
    dataset.read(Part::kTrain, 0, ids);
    std::string text;
    for (const int32_t id : ids) text += id == 256 ? std::string("|") : std::string(1, static_cast<char>(id));
    return text;
  }
  /// The text of a dataset of bytes, | where documents end.
  std::string built(const BuildOptions& o) {
    const Manifest m = build_dataset(o).manifest;
    const std::string text = text_of(o.out);
    EXPECT_EQ(m.part(Part::kTrain).documents, std::count(text.begin(), text.end(), '|'));
    return text;
  }
  std::string built(const std::string& name, const std::string& bytes) { return built(options({put(name, bytes)})); }

  testing::ScratchDir dir_;
  int sets_ = 0;
};

TEST(TextShapes, AreToldByTheBytes) {
  const auto found = [](std::string_view head, const std::string& name = "", bool whole = true) {
    const ShapeFound shape = shape_of(head, whole, name);
    if (!shape.doubt.empty()) return std::string("doubt");
    constexpr const char* kNames[] = {"text", "lines", "array"};
    return std::string(kNames[static_cast<int>(shape.shape)]);
  };
  const std::map<std::string, std::vector<std::pair<std::string, std::string>>> expected = {
      {"lines",
       {{"{\"text\":\"one\"}\n", "a.json"},
        {"{\"text\":\"one\"}\n{\"text\":\"two\"}", ""},
        {"\xef\xbb\xbf{\"text\":\"one\"}\r\n\r\n{\"text\":NaN}\r\n", "a.txt"},
        {"{\"text\":\"one\"}\n", "a.md"},
        {"nothing of it", "a.JSONL"},
        {"", "a.json"},
        {"\xef\xbb\xbf", "a.json"},
        {"\xef\xbb\xbf \r\n", "a.json"},
        {"{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n{\"a\":4}\n{\"a\":5}\nbroken\n", ""}}},
      {"array",
       {{"[{\"text\":\"one\"}]", "a.json"}, {" [\n {\"text\": \"one\"},\n {\"text\": \"two\"}\n]\n", "a.jsonl"}}},
      {"text",
       {{"plain", ""},
        {"", "a"},
        {"\xef\xbb\xbf", "a.txt"},
        {"{\n  int x = 1;\n}\n", "a.c"},
        {"[1] A. Author, A title.\n[2] Another.\n", "a.md"},
        {"[link](there) and more", ""},
        {"[{placeholder}] here", "a.txt"},
        {"{{ template }}\nprose\n", "a.md"},
        {"{\"a\": 1}\nis how JSON looks.\nSome prose.\n", "a.md"},
        {"{\"a\": 1}\nis how JSON looks.\nSome prose.\n", ""},
        {"[[wiki]] text", ""},
        {"\"a quotation\" of him", "a.txt"}}},
      {"doubt",
       {{"{\n \"text\": \"one\"\n}\n", "a.json"},
        {"{\n \"text\": \"one\"\n}\n{\n \"text\": \"two\"\n}\n", ""},
        {"{\"data\": [\n {\"text\": \"one\"},\n {\"text\": \"two\"}\n]}\n", "a.txt"},
        {"[\"one\", \"two\"]\n", ""},
        {"[\"one\"]\n[\"two\"]\n", ""},
        {"one\n", "a.json"},
        {"{\"a\":1}\nprose\n", ""}}}};
  for (const auto& [shape, files] : expected)
    for (const auto& [text, name] : files) EXPECT_EQ(found(text, name), shape) << name << ": " << text;
  // The head may end anywhere.
  const std::string line = "{\"a\": [1, true, -2.5e3], \"text\": \"\u00e9\\u00e9\\n\"}",
                    pretty = "{\n" + line.substr(1);
  for (size_t n = 2; n <= line.size(); ++n) {
    EXPECT_EQ(found(line.substr(0, n), "", false), "lines") << n;
    EXPECT_EQ(found("[" + line.substr(0, n), "", false), "array") << n;
    EXPECT_EQ(found(pretty.substr(0, n + 1), "", false), n > 2 ? "doubt" : found(pretty.substr(0, n + 1), "", false));
  }
}

/// The texts of documents, whatever the form that holds them.
TEST_F(InputShape, JsonIsReadAsDocumentsWhateverItsName) {
  std::string lines, array = "[", pretty = "\xef\xbb\xbf [\n", expected;
  for (int i = 0; i < 60; ++i) {
    const std::string text = str_cat("text ", i, " ]}[{", i % 5 == 0 ? std::string(150, 'x') : "");
    const std::string object = str_cat("{\"id\": [", i, ", {}], \"text\": \"", text, "\\\"\", \"score\": NaN}");
    lines += object + "\n";
    array += str_cat(i > 0 ? "," : "", object);
    pretty += str_cat(i > 0 ? ",\n" : "", "  ", object);
    expected += text + "\"|";
  }
  array += "]";
  pretty += "\n]\n";
  for (const std::string& content : {lines, array, pretty, "\xef\xbb\xbf" + lines}) {
    for (const char* name : {"a.json", "a.JSONL", "a.jl", "a.ndjson", "a.txt", "a"})
      EXPECT_EQ(built(name, content), expected) << name;
    EXPECT_EQ(built("c4.json.gz", gzipped(content)), expected);
    EXPECT_EQ(built("c4.json.zst", zstd_packed(content)), expected);
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    ASSERT_EQ(::write(pipe[1], content.data(), content.size()), static_cast<ssize_t>(content.size()));
    ::close(pipe[1]);
    BuildOptions o = options({"-"});
    o.stdin_descriptor = pipe[0];
    EXPECT_EQ(built(o), expected);
    ::close(pipe[0]);
  }
  BuildOptions as_text = options({put("a.json", lines)});
  as_text.format = SourceFormat::kText;
  EXPECT_EQ(built(as_text), lines + "|");
}

TEST_F(InputShape, DoubtNamesTheFormat) {
  EXPECT_THAT(error_of(options({put("package.json", "{\n  \"name\": \"x\"\n}\n")})),
              AllOf(HasSubstr("package.json holds a JSON object over several lines"), HasSubstr("--format text")));
  EXPECT_THAT(error_of(options({put("a.json", "[\"one\"]")})), HasSubstr("--format"));
  EXPECT_THAT(error_of(options({put("b.json", "[{\"text\":\"x\"}, 5]")})),
              AllOf(HasSubstr("b.json, line 1, byte offset 15"), HasSubstr("object")));
  for (const char* broken : {"[{\"text\":\"x\"}", "[{\"text\":\"x\"},]", "[{\"text\":\"x\"},,{\"text\":\"y\"}]",
                             "[{\"text\":\"x\"}{\"text\":\"y\"}]", "[{\"text\":\"x\"}] more", "{\"text\":\"x\"}"}) {
    BuildOptions o = options({put("c.json", broken)});
    o.format = SourceFormat::kJsonArray;
    EXPECT_THAT(error_of(o), AllOf(HasSubstr("c.json, line 1"), HasSubstr("correct the file"),
                                   Not(HasSubstr("--bad-lines"))))  // which helps with single elements alone
        << broken;
  }
  EXPECT_THAT(error_of(options({put("weights.bin.txt", "version https://git-lfs.github.com/spec/v1\noid x\n")})),
              HasSubstr("git-lfs"));
}

TEST_F(InputShape, BadLinesStopOrAreCounted) {
  const std::string lines =
      "{\"text\":\"one\"}\nnot json\n{\"text\":\"t\xe2\x82wo\xff\"}\n{\"body\":\"x\"}\n{\"text\":\"\\ud83d!\"}\n";
  BuildOptions o = options({put("a.jsonl", lines)});
  EXPECT_THAT(error_of(o), AllOf(HasSubstr("a.jsonl, line 2"), HasSubstr("--bad-lines skip")));
  o.bad_lines = BadLines::kSkip;
  EXPECT_EQ(built(o), "one|");
  EXPECT_EQ(build_dataset(o).manifest.bad_lines_left_out, 4);
  o = options({dir_.file("a.jsonl")});
  o.bad_lines = BadLines::kReplace;
  EXPECT_EQ(built(o), "one|t\xef\xbf\xbdwo\xef\xbf\xbd|\xef\xbf\xbd!|");
  const Manifest m = read_manifest(o.out);
  EXPECT_EQ(m.bad_lines, "replace");
  EXPECT_EQ(m.bad_lines_left_out, 2);
  EXPECT_EQ(m.bad_places, 3);
  // Of other text the bytes, where the tokenizer takes no others.
  BuildOptions text = options({put("b.txt", "caf\xe9 au lait, caf\xc3\xa9\n")});
  text.tokenizer = "characters";
  EXPECT_THAT(error_of(text), AllOf(HasSubstr("b.txt, line 1, byte offset 3"), HasSubstr("--bad-lines replace")));
  text.bad_lines = BadLines::kReplace;
  const Manifest characters = build_dataset(text).manifest;
  EXPECT_EQ(characters.bad_places, 1);
  EXPECT_EQ(characters.part(Part::kTrain).tokens, 20);
  text.out = dir_.file("skipped");
  text.bad_lines = BadLines::kSkip;
  EXPECT_EQ(build_dataset(text).manifest.part(Part::kTrain).tokens, 19);
  BuildOptions array = options({put("c.json", "[{\"text\":\"a\"}, 7, {\"text\": tru}, {\"text\":\"b\"}]")});
  array.format = SourceFormat::kJsonArray;
  array.bad_lines = BadLines::kSkip;
  EXPECT_EQ(built(array), "a|b|");
}

/// Python: bytes.decode(errors="replace").
TEST(TextRepair, PutsOneCharacterForWhatPythonDoes) {
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"a\x80z", "a?z"},       {"\xe2\x82z", "?z"},          {"\xf0\x9f\x98", "?"},
      {"\xed\xa0\x80", "???"}, {"\xc0\xaf", "??"},           {"\xf5\x80", "??"},
      {"\xe0\x80\x80", "???"}, {"\xf4\x90\x80\x80", "????"}, {"\xe2\x82\xe2\x82\xac", "?\u20ac"}};
  for (const auto& [bad, good] : expected) {
    int64_t places = 0;
    std::string text = repaired(bad, true, places);
    for (size_t at = text.find(kReplacement); at != std::string::npos; at = text.find(kReplacement))
      text.replace(at, 3, "?");
    EXPECT_EQ(text, good);
    EXPECT_EQ(places, std::count(good.begin(), good.end(), '?'));
  }
}

TEST_F(InputShape, HiddenFilesAreLeftOutAndCounted) {
  put("in/.git/config", "hidden");
  put("in/.hidden", "hidden");
  put("in/a.txt", "seen");
  BuildOptions o = options({dir_.file("in")});
  EXPECT_EQ(built(o), "seen|");
  EXPECT_EQ(build_dataset(o).hidden_files, 2);
  o = options({dir_.file("in") + "/"});
  o.include_hidden = true;
  EXPECT_EQ(built(o), "hidden|hidden|seen|");
  // What is named is not hidden, nor is what lies in it.
  EXPECT_EQ(built(options({dir_.file("in/.git")})), "hidden|");
  EXPECT_EQ(built(options({dir_.file("in/.hidden")})), "hidden|");
}

TEST_F(InputShape, AnInputThatIsNamedTwiceIsRefused) {
  const std::string file = put("in/a.txt", "text"), in = dir_.file("in");
  EXPECT_THAT(error_of(options({file, file})), HasSubstr("a.txt is an input twice"));
  EXPECT_THAT(error_of(options({in, file})), HasSubstr("a.txt is an input twice"));
  EXPECT_THAT(error_of(options({in, in + "/."})), HasSubstr("twice"));
  fs::create_symlink(file, dir_.file("link.txt"));
  EXPECT_THAT(error_of(options({file, dir_.file("link.txt")})),
              AllOf(HasSubstr("link.txt is an input twice"), HasSubstr("the same file as")));
  fs::create_directory_symlink(in, dir_.file("other"));
  EXPECT_THAT(error_of(options({in, dir_.file("other")})), HasSubstr("twice"));
  EXPECT_EQ(built(options({file, put("in/copy.txt", "text")})), "text|text|");
}

/// One file, many documents: the same on any number of threads and with blocks of any size.
TEST_F(InputShape, ASeparatorDividesAFile) {
  std::string by_line, by_text = "<|end|>\n", lines_expected, text_expected;
  for (int i = 0; i < 80; ++i) {
    std::string text;
    for (int w = 0; w < i % 9 + 1; ++w) text += str_cat("word", w, w % 4 == 3 ? "\n" : " ");
    text += "end";
    by_line += text + (i % 3 == 0 ? "\n\n" : "\r\n \t\r\n\n\n");
    by_text += text + (i % 3 == 0 ? "<|end|>" : "\n<|end|>\r\n");
    lines_expected += text + (i % 3 == 0 ? "\n|" : "\r\n|");
    text_expected += text + (i % 3 == 0 ? "|" : "\n|");
  }
  by_text += "<|end|>\n<|end|>last\n\n";
  text_expected += "last\n\n|";
  for (const int64_t block : {16, 700, 1100, 5000, 1 << 20}) {
    BuildOptions o = options({put("a.txt", by_line)});
    o.block_bytes = block;
    o.document_separator = "blank-line";
    EXPECT_EQ(built(o), lines_expected) << block;
    o = options({put("b.txt", by_text)});
    o.block_bytes = block;
    o.document_separator = "<|end|>";
    EXPECT_EQ(built(o), text_expected) << block;
    EXPECT_EQ(read_manifest(o.out).source_empty_documents, 3);
  }
}

/// An option that concerns none of the inputs is a mistake.
TEST_F(InputShape, AnOptionThatDoesNothingIsRefused) {
  const std::string lines = put("a.jsonl", "{\"text\":\"one\"}\n"), text = put("a.txt", "two\n\nthree");
  BuildOptions o = options({lines});
  o.document_separator = "blank-line";
  EXPECT_THAT(error_of(o), HasSubstr("no input is one"));
  o.inputs.push_back(text);
  EXPECT_EQ(built(o), "one|two\n|three|");
  o = options({text});
  o.text_field = "content";
  EXPECT_THAT(error_of(o), HasSubstr("--text-field 'content' applies to JSON objects"));
}

/// A header alone asks for the window: refused before any memory is.
TEST_F(InputShape, AZstdWindowOverTheLimitIsRefusedByName) {
  // Magic, descriptor, window descriptor 2^(10 + n/8), one raw block of one byte.
  const auto frame = [](int exponent) {
    return std::string("\x28\xb5\x2f\xfd\0", 5) + static_cast<char>((exponent - 10) << 3) + std::string("\x09\0\0a", 4);
  };
  EXPECT_EQ(built("a.zst", frame(27)), "a|");
  EXPECT_THAT(error_of(options({put("b.zst", frame(28))})),
              AllOf(HasSubstr("b.zst"), HasSubstr("256 MiB"), HasSubstr("--long=27")));
  EXPECT_THAT(error_of(options({put("c.zst", zstd_packed("text") + frame(31))})), HasSubstr("2048 MiB"));
  // One segment of 2^32 bytes.
  EXPECT_THAT(error_of(options({put("d.zst", std::string("\x28\xb5\x2f\xfd\xe0\0\0\0\0\1\0\0\0\x09\0\0a", 17))})),
              HasSubstr("4096 MiB"));
}

TEST_F(InputShape, TrainingATokenizerReadsTheSame) {
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += "{\"text\":\"low lower lowest\"}\n";
  const auto trained = [&](const std::string& path, const std::string& out) {
    TokenizerTraining training;
    training.inputs = {path};
    training.out = dir_.file(out);
    training.vocab_size = 270;
    train_tokenizer(training);
    return read_all(dir_.file(out) + "/tokenizer.json");
  };
  const std::string expected = trained(put("a.jsonl", lines), "a");
  EXPECT_EQ(trained(put("b.json.gz", gzipped(lines)), "b"), expected);
  try {
    trained(dir_.file("absent"), "c");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("[input] cannot read "));
  }
}

}  // namespace
}  // namespace ashlar::data
