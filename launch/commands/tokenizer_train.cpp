#include "launch/commands/tokenizer_train.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "data/build/train_tokenizer.h"
#include "launch/commands/arguments.h"

namespace ashlar::launch {
namespace {

using data::SourceFormat;
using data::TokenizerKind;

/// The value of an option that is one of a few words.
template <typename Value, size_t N>
Value choice(Arguments& given, std::string_view option, const std::pair<std::string_view, Value> (&known)[N]) {
  const std::string value = given.option(option).value_or(std::string(known[0].first));
  std::string names;
  for (const auto& [name, meaning] : known) {
    if (value == name) return meaning;
    names += str_cat(names.empty() ? "" : ", ", name);
  }
  throw input_error(given.command(), "option ", option, " = ", value, ": expected one of ", names);
}

constexpr std::pair<std::string_view, TokenizerKind> kKinds[] = {
    {"bytes-bpe", TokenizerKind::kBytesBpe},
    {"sentencepiece-bpe", TokenizerKind::kSentencePieceBpe},
    {"sentencepiece-unigram", TokenizerKind::kSentencePieceUnigram}};
constexpr std::pair<std::string_view, SourceFormat> kFormats[] = {{"auto", SourceFormat::kAuto},
                                                                  {"text", SourceFormat::kText},
                                                                  {"jsonl", SourceFormat::kJsonLines},
                                                                  {"json-array", SourceFormat::kJsonArray}};
constexpr std::pair<std::string_view, data::BadLines> kBadLines[] = {
    {"stop", data::BadLines::kStop}, {"skip", data::BadLines::kSkip}, {"replace", data::BadLines::kReplace}};

/// The values of an option that may be given several times.
std::vector<std::string> repeated(std::vector<std::string>& words, const std::string& option) {
  std::vector<std::string> values;
  for (size_t i = 0; i < words.size();) {
    if (words[i] == option && i + 1 < words.size()) {
      values.push_back(words[i + 1]);
      words.erase(words.begin() + static_cast<int64_t>(i), words.begin() + static_cast<int64_t>(i) + 2);
    } else if (words[i].starts_with(option + "=")) {
      values.push_back(words[i].substr(option.size() + 1));
      words.erase(words.begin() + static_cast<int64_t>(i));
    } else {
      ++i;
    }
  }
  return values;
}

}  // namespace

const char* const kTokenizerTrainHelp =
    R"(  ashlar tokenizer train INPUT... --out DIR [options]
      learns a tokenizer from text (INPUT as for ashlar data build) and writes it to DIR: tokenizer.json and
      tokenizer_config.json, or tokenizer.model. Equal text and options give equal files for any number of threads.
      --kind KIND          bytes-bpe (default: byte-level BPE, words as GPT-2 splits them), sentencepiece-bpe or
                           sentencepiece-unigram (SentencePiece's library: byte fallback, no normalization)
      --vocab-size N       tokens, including special ones (default 32000)
      --special TOKEN      a special token of bytes-bpe, may be repeated; the first ends documents (default
                           <|endoftext|>)
      --min-frequency N    bytes-bpe: rarer pairs are not merged (default 2)
      --sentences N        sentencepiece: lines to train on, sampled at random (default 1000000)
      --format FORMAT      auto (default: detected per file), text, jsonl or json-array
      --text-field NAME    the field of JSON objects that holds the text (default text)
      --bad-lines WHAT     stop (default), skip or replace, as for ashlar data build
      --skip-binary        skip files that are not text
      --include-hidden     include hidden files of folders
      --threads N          default: one per core
      --overwrite          replace a tokenizer in DIR
)";

int run_tokenizer_train(std::span<const std::string> args, std::ostream& out, std::ostream& err) {
  std::vector<std::string> words(args.begin(), args.end());
  data::TokenizerTraining training;
  const std::vector<std::string> special = repeated(words, "--special");
  if (!special.empty()) training.special_tokens = special;
  Arguments given("tokenizer train", words);
  training.kind = choice(given, "--kind", kKinds);
  training.format = choice(given, "--format", kFormats);
  training.out = given.option("--out").value_or("");
  training.text_field = given.option("--text-field").value_or(training.text_field);
  training.vocab_size = given.integer("--vocab-size", training.vocab_size, 2, 1 << 24);
  training.threads = static_cast<int>(given.integer("--threads", 0, 0, 1024));
  training.skip_binary = given.flag("--skip-binary");
  training.include_hidden = given.flag("--include-hidden");
  training.bad_lines = choice(given, "--bad-lines", kBadLines);
  training.overwrite = given.flag("--overwrite");
  const bool bytes = training.kind == TokenizerKind::kBytesBpe;
  // Options of the other kind are refused like unknown ones.
  if (bytes) training.min_frequency = given.integer("--min-frequency", training.min_frequency, 0, int64_t{1} << 40);
  if (!bytes) training.sentences = given.integer("--sentences", training.sentences, 1, int64_t{1} << 32);
  if (!bytes && !special.empty())
    throw input_error(given.command(), "option --special is for --kind bytes-bpe; SentencePiece has its own tokens");
  training.inputs = given.positionals();
  if (training.inputs.empty()) throw input_error(given.command(), "no input; give text files, folders or JSONL files");
  if (training.out.empty())
    throw input_error(given.command(), "option --out is missing; give the tokenizer's folder: --out DIR");

  const auto start = std::chrono::steady_clock::now();
  auto last = start;
  training.progress = [&](const std::string& what, int64_t done, int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last < std::chrono::seconds(10)) return;
    last = now;
    err << absl::StrFormat("%s %.0f%%\n", what, 100.0 * static_cast<double>(done) / static_cast<double>(total))
        << std::flush;
  };
  const data::TrainedTokenizer trained = data::train_tokenizer(training);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const std::string& file : trained.files) out << on_one_line(file) << "\n";
  out << absl::StrFormat("  vocabulary of %d, from %.1f MB in %.1f s\n", trained.vocab_size,
                         static_cast<double>(trained.text_bytes) / 1e6, seconds);
  if (trained.hidden_files > 0)
    out << "  " << trained.hidden_files << " hidden files left out (--include-hidden includes them)\n";
  if (trained.bad_lines > 0) out << "  " << trained.bad_lines << " bad JSON documents left out\n";
  if (trained.bad_places > 0)
    out << "  " << trained.bad_places << " places that are not UTF-8 "
        << (training.bad_lines == data::BadLines::kSkip ? "left out" : "replaced") << "\n";
  if (trained.vocab_size < training.vocab_size)
    out << "  fewer than the requested " << training.vocab_size << ": the text has no more pairs to merge\n";
  return 0;
}

}  // namespace ashlar::launch
