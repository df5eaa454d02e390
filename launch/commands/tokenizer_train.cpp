#include "launch/commands/subcommands.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "data/build/train_tokenizer.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/training/clock.h"

namespace ashlar::launch {
namespace {

using data::SourceFormat;
using data::TokenizerKind;

constexpr std::pair<std::string_view, TokenizerKind> kTokenizerKinds[] = {
    {"bytes-bpe", TokenizerKind::kBytesBpe},
    {"sentencepiece-bpe", TokenizerKind::kSentencePieceBpe},
    {"sentencepiece-unigram", TokenizerKind::kSentencePieceUnigram}};
constexpr std::pair<std::string_view, SourceFormat> kTextFormats[] = {{"auto", SourceFormat::kAuto},
                                                                      {"text", SourceFormat::kText},
                                                                      {"jsonl", SourceFormat::kJsonLines},
                                                                      {"json-array", SourceFormat::kJsonArray}};

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
      --text-field NAME    the field of JSON objects or column of Parquet files that holds the text (default text)
      --bad-lines WHAT     stop (default), skip or replace, as for ashlar data build
      --skip-binary        skip files that are not text
      --include-hidden     include hidden files of folders
      --threads N          default: one per core
      --overwrite          replace a tokenizer in DIR
)";

int run_tokenizer_train(Words words, Session& session) {
  data::TokenizerTraining wanted;
  Arguments given("tokenizer train", words);
  std::vector<std::string> special;
  while (const auto token = given.option("--special")) special.push_back(*token);
  if (!special.empty()) wanted.special_tokens = special;
  std::ostream& out = session.out;
  wanted.kind = given.choice("--kind", wanted.kind, kTokenizerKinds);
  wanted.format = given.choice("--format", wanted.format, kTextFormats);
  wanted.out = given.option("--out").value_or("");
  wanted.text_field = given.option("--text-field").value_or(wanted.text_field);
  wanted.vocab_size = given.integer("--vocab-size", wanted.vocab_size, 2, 1 << 24);
  wanted.threads = static_cast<int>(given.integer("--threads", 0, 0, 1024));
  wanted.skip_binary = given.flag("--skip-binary");
  wanted.include_hidden = given.flag("--include-hidden");
  wanted.bad_lines = given.choice("--bad-lines", wanted.bad_lines);
  wanted.overwrite = given.flag("--overwrite");
  const bool bytes = wanted.kind == TokenizerKind::kBytesBpe;
  // An option of another --kind is not read and is therefore refused as unknown.
  if (bytes) wanted.min_frequency = given.integer("--min-frequency", wanted.min_frequency, 0, int64_t{1} << 40);
  if (!bytes) wanted.sentences = given.integer("--sentences", wanted.sentences, 1, int64_t{1} << 32);
  if (!bytes && !special.empty())
    throw input_error(
        given.command(),
        "option --special is for --kind bytes-bpe; SentencePiece has its own special tokens; remove --special");
  wanted.inputs = given.positionals();
  if (wanted.inputs.empty()) throw input_error(given.command(), "no input; give text files, folders or JSONL files");
  if (wanted.out.empty())
    throw input_error(given.command(), "option --out is missing; give the tokenizer's folder: --out DIR");

  const double start = training::now_sec();
  double last = start;
  wanted.progress = [&](const std::string& what, int64_t done, int64_t total) {
    const double share = static_cast<double>(done) / static_cast<double>(total);
    if (session.status.on()) return session.status.show([&] { return terminal::Status{what, share, ""}; });
    const double now = training::now_sec();
    if (now - last < 10) return;
    last = now;
    session.err << absl::StrFormat("%s %.0f%%\n", what, 100 * share) << std::flush;
  };
  const data::TrainedTokenizer trained = data::train_tokenizer(wanted);
  session.status.clear();
  const double seconds = training::now_sec() - start;
  for (const std::string& file : trained.files) out << on_one_line(file) << "\n";
  out << absl::StrFormat("  vocabulary of %d, from %.1f MB in %.1f s\n", trained.vocab_size,
                         static_cast<double>(trained.text_bytes) / 1e6, seconds);
  if (trained.hidden_files > 0)
    out << "  " << trained.hidden_files << " hidden files left out (--include-hidden includes them)\n";
  if (trained.bad_lines > 0) out << "  " << trained.bad_lines << " bad documents left out\n";
  if (trained.bad_places > 0)
    out << "  " << trained.bad_places << " places that are not UTF-8 "
        << (wanted.bad_lines == data::BadLines::kSkip ? "left out" : "replaced") << "\n";
  if (trained.vocab_size < wanted.vocab_size)
    out << "  fewer than the requested " << wanted.vocab_size << ": the text has no more pairs to merge\n";
  return 0;
}

}  // namespace ashlar::launch
