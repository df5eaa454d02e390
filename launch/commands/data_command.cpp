#include "launch/commands/subcommands.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <ostream>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "data/build/dataset_builder.h"
#include "data/read/corpus_entropy.h"
#include "data/read/dataset_verify.h"
#include "data/read/token_dataset.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/training/clock.h"

namespace ashlar::launch {

const char* const kDataHelp = R"(ashlar data: builds, inspects and verifies token datasets

  ashlar data build INPUT... --out DIR [options]
      INPUT: text files (one document each), folders (all files below except hidden ones, sorted), JSON lines (one
      document per line), JSON arrays of objects (one document each), all also compressed with gzip or zstd, Parquet
      files (one document per row), files of tokens (llm.c and nanoGPT .bin, Megatron .bin with its .idx, nanotron .ds
      with its .ds.index, NumPy .npy), or - for standard input. A build that was killed resumes when run again with
      the same arguments and unchanged input. Files in DIR that were not written by a build are never deleted or
      overwritten. The type of a file is detected from its content, not its name. A file that is neither text nor
      tokens is refused, as are JSON of another shape (set --format) and a file given twice. Token ids are copied and
      must lie in the vocabulary of --tokenizer; its end-of-document id ends documents.
      --out DIR            folder of the dataset (required)
      --tokenizer NAME     bytes (default), characters, or a tokenizer's file or folder, as in
                           ashlar tokenizer --help (documents then end with its eos)
      --validation SHARE   share of the validation part, 0 to 0.9 (default 0.1): whole documents if there are 20
                           or more, otherwise the end of the text
      --format FORMAT      auto (default), text (also for JSON), jsonl, json-array, bytes (any file, unchanged, one
                           document each), uint16 or uint32 (files of ids of that type)
      --document-separator none|blank-line|TEXT
                           separator of documents in a text file: none (default: a file is one document), blank lines,
                           or TEXT with the line break after it
      --special-tokens text|parse|refuse
                           spellings of special tokens in the text, such as <|endoftext|>: text (default; counted and
                           reported), tokens as the tokenizer's library parses them (an end-of-document token then
                           ends a document), or an error
      --bad-lines stop|skip|replace
                           a JSON document that cannot be parsed, a null in a Parquet file, or bytes that are not
                           UTF-8: an error (default), skipped, or bytes replaced by U+FFFD (a
                           document that still cannot be parsed is skipped); counted
      --include-hidden     include files in folders whose name, or folder name, begins with a dot
      --skip-binary        skip files that are neither text nor tokens, and print their number
      --text-field NAME    the field of JSON objects, or the column of Parquet files, that holds the text (default
                           text); a column in a struct: STRUCT.FIELD
      --threads N          default: one per core
      --shard-tokens N     tokens per shard file, a multiple of 65536 (default 67108864)
      --overwrite          replace a dataset in DIR that was built from other input
  ashlar data inspect DIR [--tokens N] [--entropy]
      counts, tokenizer, the first N tokens (default 64) as text; with --entropy the unigram entropy of the validation
      part and the entropy of held-out bigrams, in nats per token
  ashlar data verify DIR
      checks every byte against its checksums, and each shard's position and tokens against the manifest; on exit code 3
      prints each damaged file, dataset and chunk, and each misplaced shard
  ashlar data fetch list | TASK... [--task-data DIR]
      list: where the files of each task of `eval --tasks` are published, their licence, and where they belong in DIR
      (default task-data). TASK: downloads them with curl and compares the number of records with the published one
)";

namespace {

using data::Part;

/// Returns the only positional argument, a directory.
std::string only_directory(Arguments& given) {
  const std::vector<std::string> names = given.positionals();
  given.expect(names, 1, "one dataset folder", " names; see ashlar data --help");
  return names[0];
}

std::string text_option(Arguments& given, std::string_view name, const std::string& otherwise) {
  const std::optional<std::string> value = given.option(name);
  if (value && value->empty()) throw input_error(given.command(), "option ", name, " is empty; see ashlar data --help");
  return value.value_or(otherwise);
}

std::string size_text(int64_t bytes) {
  if (bytes < 10'000) return str_cat(bytes, " bytes");
  if (bytes < 10'000'000) return absl::StrFormat("%.1f kB", static_cast<double>(bytes) / 1e3);
  if (bytes < 10'000'000'000) return absl::StrFormat("%.1f MB", static_cast<double>(bytes) / 1e6);
  return absl::StrFormat("%.1f GB", static_cast<double>(bytes) / 1e9);
}

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return str_cat(s, " s");
  if (s < 3600) return absl::StrFormat("%d:%02d min", s / 60, s % 60);
  return absl::StrFormat("%d:%02d h", s / 3600, s / 60 % 60);
}

const char* phase_name(data::BuildProgress::Phase phase) {
  switch (phase) {
    case data::BuildProgress::Phase::kLook: return "looking";
    case data::BuildProgress::Phase::kCount: return "counting";
    default: return "writing";
  }
}

/// Shows progress: as the status line of a terminal, otherwise as a line every 10 seconds.
class ProgressLine {
 public:
  explicit ProgressLine(Session& session) : status_(session.status), err_(session.err) {}

  void show(const data::BuildProgress& p) {
    const double now = training::now_sec();
    if (p.phase != phase_ || !started_) {
      phase_ = p.phase;
      started_ = true;
      phase_start_ = last_ = now;
    }
    const double share = static_cast<double>(p.bytes_done) / static_cast<double>(std::max<int64_t>(1, p.bytes_total));
    const auto values = [&] {
      const double rate = static_cast<double>(p.bytes_done) / std::max(1e-3, now - phase_start_);
      return absl::StrFormat("%s of %s  %.0f MB/s  ETA %s", size_text(p.bytes_done), size_text(p.bytes_total),
                             rate / 1e6,
                             duration_text(static_cast<double>(p.bytes_total - p.bytes_done) / std::max(rate, 1.0)));
    };
    if (status_.on()) return status_.show([&] { return terminal::Status{phase_name(p.phase), share, values()}; });
    if (now - last_ < 10) return;
    last_ = now;
    err_ << absl::StrFormat("%s %3.0f%%  %s", phase_name(p.phase), 100 * share, values()) << std::endl;
  }

  /// Prints a whole line.
  void note(const std::string& text) {
    status_.clear();
    err_ << on_one_line(text) << std::endl;
  }

 private:
  terminal::StatusLine& status_;
  std::ostream& err_;
  bool started_ = false;
  data::BuildProgress::Phase phase_ = data::BuildProgress::Phase::kCount;
  double phase_start_ = 0, last_ = 0;
};

void print_counts(const data::Manifest& m, std::ostream& out) {
  for (const Part part : data::kParts) {
    const data::PartInfo& info = m.part(part);
    int64_t bytes = 0;
    for (const data::ShardInfo& shard : info.shards) bytes += shard.bytes;
    out << absl::StrFormat("  %-10s %d tokens, %d documents, %d shards, %s\n", std::string(data::name_of(part)),
                           info.tokens, info.documents, info.shards.size(), size_text(bytes));
  }
}

/// Prints what was skipped or changed, one line each.
void print_remarks(const data::BuildReport& report, std::ostream& out) {
  const data::Manifest& m = report.manifest;
  if (report.shards_kept > 0) out << "  " << report.shards_kept << " shards kept from an unfinished run\n";
  if (m.source_empty_documents > 0) out << "  " << m.source_empty_documents << " empty documents left out\n";
  if (m.bad_lines_left_out > 0) out << "  " << m.bad_lines_left_out << " bad documents left out\n";
  if (m.bad_places > 0) {
    out << "  " << m.bad_places << " places that are not UTF-8 " << (m.bad_lines == "skip" ? "left out" : "replaced")
        << "\n";
  }
  if (report.binary_files > 0) out << "  " << report.binary_files << " binary files left out\n";
  if (report.hidden_files > 0)
    out << "  " << report.hidden_files << " hidden files left out (--include-hidden includes them)\n";
  if (report.other_entries > 0) out << "  " << report.other_entries << " folder entries left out that are not files\n";
}

/// Warns about spellings of special tokens in the text.
void warn_of_spellings(const data::Manifest& m, std::ostream& err) {
  if (m.special_spellings == 0) return;
  err << "warning: the text has " << m.special_spellings << " spellings of ";
  if (m.special_tokens == "parse") {
    err << "the end-of-document token, each of which ended a document";
  } else {
    err << "special tokens, read as text; --special-tokens parse reads them as tokens, refuse reports the first";
  }
  err << std::endl;
}

data::BuildOptions build_options(Arguments& given) {
  data::BuildOptions options;
  options.overwrite = given.flag("--overwrite");
  options.skip_binary = given.flag("--skip-binary");
  options.include_hidden = given.flag("--include-hidden");
  options.special_tokens = given.choice("--special-tokens", options.special_tokens);
  options.bad_lines = given.choice("--bad-lines", options.bad_lines);
  options.document_separator = text_option(given, "--document-separator", options.document_separator);
  if (options.document_separator.size() > data::DocumentSeparator::kMaxBytes ||
      options.document_separator.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw input_error(given.command(), "option --document-separator = ", printable(options.document_separator),
                      ": expected none, blank-line, or a text of at most ", data::DocumentSeparator::kMaxBytes,
                      " bytes that is not only white space");
  }
  options.out = text_option(given, "--out", "");
  options.tokenizer = text_option(given, "--tokenizer", options.tokenizer);
  options.validation = given.number("--validation", options.validation, 0, 0.9);
  options.text_field = text_option(given, "--text-field", options.text_field);
  options.threads = static_cast<int>(given.integer("--threads", options.threads, 1, 1024));
  options.shard_tokens = given.integer("--shard-tokens", options.shard_tokens, data::kChunkTokens, int64_t{1} << 32);
  options.format = given.choice("--format", options.format);
  options.inputs = given.positionals();
  if (options.shard_tokens % data::kChunkTokens != 0) {
    throw input_error(given.command(), "option --shard-tokens = ", options.shard_tokens, ": expected a multiple of ",
                      data::kChunkTokens);
  }
  if (options.inputs.empty()) {
    throw input_error(given.command(),
                      "no input; give text files, folders, JSONL or Parquet files, files of tokens or - for ",
                      "standard input");
  }
  if (options.out.empty())
    throw input_error(given.command(), "option --out is missing; give the dataset's folder: --out DIR");
  return options;
}

int run_build(Words words, Session& session) {
  Arguments given("data build", words);
  data::BuildOptions options = build_options(given);
  std::ostream& out = session.out;
  ProgressLine line(session);
  options.progress = [&](const data::BuildProgress& p) { line.show(p); };
  options.note = [&](const std::string& text) { line.note(text); };
  const double start = training::now_sec();
  const std::optional<data::BuildReport> report = data::build_dataset(options);
  session.status.clear();
  const double seconds = training::now_sec() - start;
  const data::Manifest& m = report->manifest;
  if (report->already_complete) {
    out << on_one_line(options.out) << " is already built from these inputs; nothing to do\n";
  } else {
    out << absl::StrFormat("%s: %d files, %s in %.1f s, %.0f MB/s\n", on_one_line(options.out), m.source_files,
                           size_text(m.source_bytes), seconds,
                           static_cast<double>(m.source_bytes) / 1e6 / std::max(seconds, 1e-3));
  }
  warn_of_spellings(m, session.err);
  print_remarks(*report, out);
  print_counts(m, out);
  return 0;
}

void print_first_tokens(data::TokenDataset& dataset, int64_t n, std::ostream& out) {
  n = std::min(n, dataset.tokens(Part::kTrain));
  if (n == 0) return;
  std::vector<int32_t> ids(static_cast<size_t>(n));
  dataset.read(Part::kTrain, 0, ids);
  const int32_t eod = dataset.tokenizer().eod_id();
  std::string ids_text, text;
  std::vector<int32_t> run;
  for (const int32_t id : ids) {
    ids_text += str_cat(ids_text.empty() ? "" : " ", id);
    if (id != eod) {
      run.push_back(id);
      continue;
    }
    text += escaped(dataset.tokenizer().decode(run), std::string::npos) + "<end of document>";
    run.clear();
  }
  text += escaped(dataset.tokenizer().decode(run), std::string::npos);
  out << "first " << n << " tokens: " << ids_text << "\nas text: " << text << "\n";
}

int run_inspect(Words words, Session& session) {
  std::ostream& out = session.out;
  Arguments given("data inspect", words);
  const bool entropies = given.flag("--entropy");
  const int64_t tokens = given.integer("--tokens", 64, 0, 1'000'000);
  const std::string directory = only_directory(given);
  data::TokenDataset dataset(directory);
  for (const std::string& warning : dataset.warnings()) session.err << "warning: " << on_one_line(warning) << std::endl;
  const data::Manifest& m = dataset.manifest();
  out << on_one_line(dataset.directory()) << ": dataset version " << m.version << ", tokenizer "
      << on_one_line(dataset.tokenizer().identity()) << " (" << m.tokenizer_hash << "), vocabulary " << m.vocab_size
      << ", end of document " << m.eod_id << ", " << (m.wide ? "uint32" : "uint16") << "\n";
  out << "  source     " << m.source_files << " files, " << size_text(m.source_bytes) << ", "
      << m.source_empty_documents << " empty documents left out\n";
  if (!m.special_tokens.empty() && dataset.tokenizer().has_special_tokens()) {
    out << "  special tokens in the text: " << m.special_spellings << " spellings, --special-tokens "
        << m.special_tokens << "\n";
  }
  if (!m.bad_lines.empty()) {
    out << "  --bad-lines " << m.bad_lines << ": " << m.bad_lines_left_out << " documents left out, " << m.bad_places
        << " places that are not UTF-8\n";
  }
  const data::Fingerprint print = dataset.fingerprint();
  out << "  fingerprint tokenizer " << print.tokenizer << ", tokens " << print.tokens << "\n";
  print_counts(m, out);
  out << "  validation "
      << (m.validation_rule == "documents" ? "whole documents"
          : m.validation_rule == "tail"    ? "the end of the text"
                                           : "none")
      << ", share " << m.validation_share << "\n";
  print_first_tokens(dataset, tokens, out);
  if (entropies) {
    const data::CorpusEntropy entropy = data::corpus_entropy(dataset);
    out << absl::StrFormat("unigram entropy of the validation part: %.4f nats per token\n", entropy.unigram);
    out << absl::StrFormat("held-out bigram entropy: %.4f nats per token\n", entropy.bigram);
  }
  return 0;
}

int run_verify(Words words, Session& session) {
  Arguments given("data verify", words);
  const std::string directory = only_directory(given);
  const data::VerifyReport report = data::verify_dataset(directory, [&](int64_t done, int64_t total) {
    session.status.show([&] {
      const double share = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total));
      return terminal::Status{"verifying", share, str_cat(size_text(done), " of ", size_text(total))};
    });
  });
  session.status.clear();
  for (const std::string& line : report.damage) session.err << on_one_line(line) << "\n";
  if (!report.damage.empty()) {
    session.err << on_one_line(directory) << ": damaged, " << report.damage.size()
                << (report.damage.size() == 1 ? " place listed above" : " places listed above") << std::endl;
    return static_cast<int>(ExitCode::kDamagedData);
  }
  session.out << on_one_line(directory) << ": valid; " << report.files << " files, " << size_text(report.bytes) << ", "
              << report.chunks << " chunks match their checksums\n";
  return 0;
}

}  // namespace

int run_data_command(Words words, Session& session) {
  return run_subcommand(
      "data", {{"build", run_build}, {"inspect", run_inspect}, {"verify", run_verify}, {"fetch", run_data_fetch}},
      kDataHelp, words, session);
}

}  // namespace ashlar::launch
