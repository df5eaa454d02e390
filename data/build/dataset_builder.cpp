#include "data/build/dataset_builder.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/device/host_limits.h"
#include "core/io/atomic_file.h"
#include "core/io/checksum.h"
#include "core/io/posix_file.h"
#include "data/build/block_reader.h"
#include "data/build/build_claim.h"
#include "data/build/build_journal.h"
#include "data/build/build_plan.h"
#include "data/build/output_folder.h"
#include "data/build/part_writer.h"
#include "data/build/tokenizer_agreement.h"
#include "data/digest.h"
#include "data/ordered_parallel.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;

/// A block with more tokens than this is written in several steps. With the default block size (2 MiB), only a block
/// with a document longer than 2 MiB has so many tokens, since a text rarely has more than one token per byte.
constexpr int64_t kHeldTokens = int64_t{4} << 20;

/// Thrown when the text of a file differs from the text that an earlier pass or process has read.
struct SourceChanged {
  std::string what;  ///< the file and where in it the text differs
};

/// The CorpusScan of the first pass, which counts tokens, and the tokenizer. `tokenizer` is null if its vocabulary must
/// first be learned from the text.
struct Planned {
  explicit Planned(const CorpusScans& scans) : scan(scans.make()) {
    if (scans.tokenizer != nullptr) {
      tokenizer = scans.tokenizer.get();
    } else if (scan->one_token_per_byte()) {
      own = scan->finish();
      tokenizer = own.get();
    }
  }
  std::unique_ptr<CorpusScan> scan;
  std::unique_ptr<Tokenizer> own;
  const Tokenizer* tokenizer = nullptr;
};

class Builder {
 public:
  explicit Builder(const BuildOptions& options)
      : options_(options),
        scans_(corpus_scans(options.tokenizer)),  // an unknown tokenizer is an error before any file changes
        folder_(options.out),
        claim_(folder_),
        threads_(options.threads > 0 ? options.threads : static_cast<int>(usable_cores())) {}

  BuildReport run();

 private:
  void note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }
  void report(BuildProgress::Phase phase, int64_t bytes) const {
    if (options_.progress) options_.progress({phase, bytes, sources_.bytes});
  }
  std::string fingerprint() const;
  void check_tokens() const;
  void check_named_tokenizer(const SourceFile& file, const Tokenizer& tokenizer) const;
  void check_options() const;
  /// `tokenizer` must outlive the returned rules. It is null if the vocabulary is not yet learned.
  DocumentRules document_rules(SplitPoints split_points, const Tokenizer* tokenizer) const;
  void compare_with_finished(const Manifest& old);
  bool resume_plan();
  void make_plan();
  BlockCount count_block(int64_t block, CorpusScan& scan, const BlockReader& reader,
                         const BlockReader::Turn& turn) const;
  void check_block(int64_t block, const Digest& digest) const;
  bool text_known(const BuildJournal::Entry& entry) const;
  void check_space(int64_t bytes) const;
  /// The tokens of a block that are not yet written. Arrays are indexed by Part.
  struct Encoded {
    Digest digest;  ///< digest of the text of the block
    std::vector<int32_t> tokens[2];
    std::vector<int64_t> starts[2];  ///< where documents start in `tokens`
    int64_t written[2] = {0, 0};     ///< number of tokens of the block already written
  };
  Encoded encode(int64_t block, const BlockReader& reader, PartWriter* writers, const BlockReader::Turn& turn) const;
  void encode_documents(const Block& block, const BlockReader& reader, const bool* needed, Encoded& out,
                        const BlockReader::Check& check, const BlockReader::Turn& turn,
                        const std::function<void()>& flush) const;
  void part_tail(int64_t block, Encoded& out) const;
  void write(int64_t block, Encoded& encoded, bool last, PartWriter* writers) const;
  void write_parts();
  void plan_and_write();

  const BuildOptions& options_;
  CorpusScans scans_;
  OutputFolder folder_;
  BuildClaim claim_;
  int threads_;
  std::string fingerprint_;
  bool resumed_ = false;  ///< the plan is from an earlier process
  SourceList sources_;
  BuildPlan plan_;
  std::unique_ptr<Tokenizer> tokenizer_;
  BuildReport result_;
};

/// Returns the fingerprint of the options and of the sizes of the inputs, which are known before the text is read.
std::string Builder::fingerprint() const {
  std::string text = str_cat("build 2 ", scans_.identity, " ", std::bit_cast<uint64_t>(options_.validation), " ",
                             options_.text_field, " ", options_.shard_tokens, " ", options_.block_bytes);
  // Options with default values are left out of the text, so that fingerprints of older datasets and builds stay valid.
  if (scans_.tokenizer != nullptr && scans_.tokenizer->has_special_tokens())
    text += str_cat(" special ", name_of(options_.special_tokens));
  if (options_.bad_lines != BadLines::kStop) text += str_cat(" bad lines ", name_of(options_.bad_lines));
  if (options_.document_separator != "none")
    text += str_cat(" separator ", options_.document_separator.size(), ":", options_.document_separator);
  for (const SourceFile& f : sources_.files) {
    constexpr std::string_view kShapes[] = {"", " lines", " array", " rows"};
    text += str_cat(" ", f.bytes, kShapes[static_cast<int>(f.shape)]);
    if (f.rows) text += str_cat(" pages ", f.rows->layout().hex());
    if (f.tokens) text += str_cat(" ", name_of(f.tokens->type));
    if (f.tokens && !f.tokens->index.empty()) text += str_cat(" index ", io::sum_file(f.tokens->index).crc32);
  }
  return digest_of(text).hex();
}

/// If there are token files, throws an input error if the tokenizer learns its vocabulary from text, or if the integer
/// type of a file is too small for the largest id of the vocabulary. One-byte types are not checked.
void Builder::check_tokens() const {
  const auto first = std::find_if(sources_.files.begin(), sources_.files.end(),
                                  [](const SourceFile& file) { return file.tokens.has_value(); });
  if (first == sources_.files.end()) return;
  if (options_.tokenizer == "characters") {
    throw input_error("data build", first->shown, " contains token ids (", first->tokens->form, ", ",
                      name_of(first->tokens->type), "), but the characters tokenizer learns its vocabulary from text;",
                      " give the tokenizer that made the ids with --tokenizer");
  }
  const std::unique_ptr<Tokenizer> built_in = scans_.tokenizer == nullptr ? scans_.make()->finish() : nullptr;
  const Tokenizer& tokenizer = built_in == nullptr ? *scans_.tokenizer : *built_in;
  const int64_t vocabulary = tokenizer.vocab_size();
  std::string named;  // the tokenizer that the last file names
  for (const SourceFile& file : sources_.files) {
    if (file.tokens && file.tokens->loss_mask)
      note(str_cat(file.shown, ".loss is not used: the loss counts every token"));
    if (file.tokens && file.tokens->tokenizer != named) check_named_tokenizer(file, tokenizer);
    if (file.tokens) named = file.tokens->tokenizer;
    if (!file.tokens || largest_of(file.tokens->type) >= vocabulary - 1 || bytes_of(file.tokens->type) < 2) continue;
    throw input_error("data build", file.shown, " contains ids of type ", name_of(file.tokens->type), " (",
                      file.tokens->form, "), too small for the ids of the ", vocabulary, " tokens of --tokenizer ",
                      options_.tokenizer,
                      "; give the tokenizer that made the ids, or set the type with --format uint32");
  }
}

/// Throws an input error if a token file names another tokenizer than the given one. Notes a name that cannot be
/// compared.
void Builder::check_named_tokenizer(const SourceFile& file, const Tokenizer& tokenizer) const {
  const std::string& named = file.tokens->tokenizer;
  if (named.empty()) return;
  const TokenizerAgreement agreement = compare_tokenizers(named, options_.tokenizer, tokenizer);
  if (agreement == TokenizerAgreement::kDiffers) {
    throw input_error("data build", file.shown, " has ids of the tokenizer ", printable(named), ", and --tokenizer ",
                      options_.tokenizer, " is another one; give the files of the tokenizer that made the ids");
  }
  if (agreement == TokenizerAgreement::kUnknown) {
    note(str_cat(file.shown, " has ids of the tokenizer ", printable(named), "; taken to be --tokenizer ",
                 options_.tokenizer));
  }
}

/// Throws an input error for an option that has no effect on any input, since it is probably a mistake.
void Builder::check_options() const {
  const auto any = [&](bool json) {
    return std::any_of(sources_.files.begin(), sources_.files.end(), [&](const SourceFile& file) {
      return !file.tokens && (file.shape != TextShape::kText) == json;
    });
  };
  if (options_.document_separator != "none" && !any(false)) {
    throw input_error("data build", "--document-separator ", printable(options_.document_separator),
                      " applies to text files, but no input is one; remove --document-separator");
  }
  if (options_.text_field != BuildOptions{}.text_field && !any(true)) {
    throw input_error("data build", "--text-field ", printable(options_.text_field),
                      " applies to JSON objects and Parquet files, but no input has any; remove --text-field, or set ",
                      "the format of the files with --format jsonl or json-array");
  }
}

DocumentRules Builder::document_rules(SplitPoints split_points, const Tokenizer* tokenizer) const {
  DocumentRules rules{.split_points = split_points,
                      .tokenizer = tokenizer,
                      .separator = DocumentSeparator(options_.document_separator),
                      .bad_lines = options_.bad_lines,
                      .text_field = options_.text_field};
  if (tokenizer == nullptr) return rules;
  rules.vocab_size = tokenizer->vocab_size();
  rules.eod_id = tokenizer->eod_id();
  return rules;
}

Digest digest_of_all(const std::vector<Digest>& blocks) { return digest_of(std::as_bytes(std::span(blocks))); }

void Builder::compare_with_finished(const Manifest& old) {
  const auto refuse = [&](const char* why) {
    throw input_error("data build", options_.out, " already holds a dataset ", why,
                      "; choose another --out, or replace it with --overwrite");
  };
  if (old.old_form()) refuse("in the old format, which has no digest of the text to compare with");
  if (old.source_fingerprint != fingerprint_) refuse("built from other inputs or options");
  const std::vector<Block> blocks = split_into_blocks(sources_, options_.block_bytes);
  const Planned planned(scans_);
  const BlockReader reader(sources_, document_rules(planned.scan->split_points(), planned.tokenizer));
  std::vector<Digest> digests;
  int64_t done = 0;
  ordered_parallel(
      threads_, static_cast<int64_t>(blocks.size()),
      [&](int64_t i, int, const BlockReader::Turn& turn) { return reader.digest(blocks[i], turn); },
      [&](int64_t i, const Digest& digest) {
        digests.push_back(digest);
        done += blocks[i].end - blocks[i].begin;
        report(BuildProgress::Phase::kCount, done);
      });
  if (digest_of_all(digests).hex() != old.source_digest)
    refuse("built from other text: the same options and size, but other bytes");
  result_.manifest = old;
  result_.already_complete = true;
}

bool Builder::resume_plan() {
  if (!fs::exists(folder_.at("build.plan"))) return false;
  plan_ = parse_plan(io::read_text_file(folder_.at("build.plan"), io::kAnySize));
  if (plan_.fingerprint == fingerprint_) return true;
  note(str_cat(options_.out, " has an unfinished build of other inputs or options; starting over"));
  return false;
}

void Builder::make_plan() {
  claim_.remove_unfinished();
  plan_ = BuildPlan{.fingerprint = fingerprint_, .shard_tokens = options_.shard_tokens};
  plan_.blocks = split_into_blocks(sources_, options_.block_bytes);
  std::vector<std::unique_ptr<CorpusScan>> scans;
  for (int w = 0; w < threads_; ++w) scans.push_back(scans_.make());
  const Planned planned(scans_);
  const BlockReader reader(sources_, document_rules(planned.scan->split_points(), planned.tokenizer));
  PlanBuilder builder(plan_, options_.validation);
  int64_t done = 0;
  const auto count = [&](int64_t i, int worker, const BlockReader::Turn& turn) {
    return count_block(i, *scans[worker], reader, turn);
  };
  ordered_parallel(threads_, static_cast<int64_t>(plan_.blocks.size()), count,
                   [&](int64_t i, const BlockCount& counted) {
                     builder.add(i, counted);
                     done += plan_.blocks[i].end - plan_.blocks[i].begin;
                     report(BuildProgress::Phase::kCount, done);
                   });
  builder.finish();
  for (int w = 1; w < threads_; ++w) scans[0]->merge(*scans[w]);
  plan_.tokenizer_json = scans[0]->finish()->to_json();
  io::write_file_atomically(folder_.at("build.plan"), serialise_plan(plan_));
}

BlockCount Builder::count_block(int64_t i, CorpusScan& scan, const BlockReader& reader,
                                const BlockReader::Turn& turn) const {
  const Block& block = plan_.blocks[i];
  const SourceFile& source = sources_.files[block.file];
  BlockCount counted;
  const bool separated = options_.document_separator != "none";
  if (scan.one_token_per_byte() && source.shape == TextShape::kText && !source.tokens && !separated) {
    const bool last = block.end == source.bytes;
    counted.pieces.push_back({.tokens = block.end - block.begin + (last ? 1 : 0), .ends = last});
    return counted;
  }
  std::optional<DocumentEncoder> encoder;
  if (scans_.tokenizer != nullptr) encoder.emplace(*scans_.tokenizer, options_.special_tokens);
  std::vector<int32_t> ids;
  const auto visit = [&](const DocumentPiece& piece) {
    if (piece.has_ids || !encoder) {
      const int64_t tokens =
          piece.has_ids ? static_cast<int64_t>(piece.ids.size()) : scan.add(piece.text) + (piece.ends ? 1 : 0);
      counted.pieces.push_back({.tokens = tokens, .ends = piece.ends});
      return;
    }
    ids.clear();
    counted.special_spellings += encoder->encode(piece, ids);
    encoder->each_document(piece, ids, [&](std::span<const int32_t> document, bool ends) {
      counted.pieces.push_back({.tokens = static_cast<int64_t>(document.size()), .ends = ends});
    });
  };
  counted.read = reader.read(
      block, [&](const Digest& digest) { counted.digest = digest; }, visit, turn);
  return counted;
}

/// Throws SourceChanged if the digest of block `i` differs from its digest in the plan, or from the digest that an
/// earlier process has recorded in the journal.
void Builder::check_block(int64_t i, const Digest& digest) const {
  const Block& block = plan_.blocks[i];
  const Digest* noted = claim_.journal().block(i);
  if ((block.digested == 0 || block.digest == digest) && (noted == nullptr || *noted == digest)) return;
  throw SourceChanged{str_cat(sources_.files[block.file].shown, " (bytes ", block.begin, " to ", block.end, ")")};
}

/// True if the digest of the text is recorded for every block whose tokens are in the finished shard `entry`, so that
/// this run can detect changed text.
bool Builder::text_known(const BuildJournal::Entry& entry) const {
  const int64_t begin = entry.shard * plan_.shard_tokens, end = begin + entry.info.tokens;
  const auto blocks = static_cast<int64_t>(plan_.blocks.size());
  const auto ends_before = [&](int64_t i) { return plan_.part_start(entry.part, i + 1) <= begin; };
  const int64_t first = *std::ranges::partition_point(std::views::iota(int64_t{0}, blocks), ends_before);
  for (int64_t i = first; i < blocks && plan_.part_start(entry.part, i) < end; ++i) {
    if (plan_.blocks[i].digested == 0 && claim_.journal().block(i) == nullptr) return false;
  }
  return true;
}

void Builder::check_space(int64_t bytes) const {
  std::error_code error;
  const fs::space_info space = fs::space(options_.out, error);
  if (!error && space.available < static_cast<uint64_t>(bytes)) {
    throw resource_error("data build", options_.out, " needs ", bytes / 1'000'000 + 1, " MB more, the disk has ",
                         space.available / 1'000'000, " MB free; free space or choose another --out");
  }
}

Builder::Encoded Builder::encode(int64_t i, const BlockReader& reader, PartWriter* writers,
                                 const BlockReader::Turn& turn) const {
  const Block& block = plan_.blocks[i];
  bool needed[2];
  Encoded out;
  for (const Part part : kParts) {
    const int p = static_cast<int>(part);
    const int64_t begin = plan_.part_start(part, i), end = plan_.part_start(part, i + 1);
    needed[p] = writers[p].needs(begin, end);
    if (needed[p]) out.tokens[p].reserve(static_cast<size_t>(std::min(end - begin, kHeldTokens)));
  }
  const auto check = [&](const Digest& digest) {
    check_block(i, digest);
    out.digest = digest;
  };
  if (!needed[0] && !needed[1]) {
    check(reader.digest(block, turn));
    return out;
  }
  const auto flush = [&] {
    turn();
    part_tail(i, out);
    write(i, out, false, writers);
  };
  encode_documents(block, reader, needed, out, check, turn, flush);
  part_tail(i, out);
  return out;
}

/// For SplitRule::kTail: moves the tokens after the end of the train part to the validation part.
void Builder::part_tail(int64_t i, Encoded& out) const {
  if (plan_.rule != SplitRule::kTail) return;
  const int64_t before = plan_.blocks[i].stream_start + out.written[0] + out.written[1];
  const int64_t keep = std::max<int64_t>(0, plan_.train_tokens - before);
  if (keep >= static_cast<int64_t>(out.tokens[0].size())) return;
  // The first token of the validation part counts as the start of a document, even if that document began in the train
  // part.
  if (plan_.part_start(Part::kValidation, i) + out.written[1] == 0) out.starts[1].push_back(0);
  std::vector<int64_t>& starts = out.starts[0];
  const auto first = std::lower_bound(starts.begin(), starts.end(), keep);
  for (auto it = first; it != starts.end(); ++it) {
    if (*it > keep || out.starts[1].empty()) out.starts[1].push_back(*it - keep);
  }
  starts.erase(first, starts.end());
  out.tokens[1].assign(out.tokens[0].begin() + keep, out.tokens[0].end());
  out.tokens[0].resize(static_cast<size_t>(keep));
}

/// Writes the tokens in `encoded`, which may be only some of the tokens of block `i`. `last` is true in the last call
/// for the block. Called for the blocks in order.
void Builder::write(int64_t i, Encoded& encoded, bool last, PartWriter* writers) const {
  for (const Part part : kParts) {
    const int p = static_cast<int>(part);
    const int64_t begin = plan_.part_start(part, i), planned = plan_.part_start(part, i + 1) - begin;
    const int64_t before = encoded.written[p], now = before + static_cast<int64_t>(encoded.tokens[p].size());
    if (writers[p].needs(begin, begin + planned)) {
      if (now > planned || (last && now != planned)) {
        throw SourceChanged{str_cat(sources_.files[plan_.blocks[i].file].shown, " (", planned, " tokens before, now ",
                                    last ? "" : "at least ", now, ")")};
      }
      writers[p].feed(begin + before, encoded.tokens[p], encoded.starts[p]);
    }
    encoded.written[p] = now;
    encoded.tokens[p].clear();
    encoded.starts[p].clear();
  }
}

void Builder::encode_documents(const Block& block, const BlockReader& reader, const bool* needed, Encoded& out,
                               const BlockReader::Check& check, const BlockReader::Turn& turn,
                               const std::function<void()>& flush) const {
  const DocumentEncoder encoder(*tokenizer_, options_.special_tokens);
  const bool tail = plan_.rule == SplitRule::kTail;
  // With kParse a text may contain end-of-document ids, so only the ids show to which document a token belongs.
  const bool parsed = options_.special_tokens == SpecialPolicy::kParse && tokenizer_->has_special_tokens();
  int64_t document = block.first_document;
  std::vector<int32_t> ids;
  // With SplitRule::kTail all tokens go to out.tokens[0], and part_tail divides them later.
  const auto part_of = [&] {
    return !tail && plan_.rule != SplitRule::kNone && is_validation_document(plan_.share, document) ? 1 : 0;
  };
  const auto visit = [&](const DocumentPiece& piece) {
    if (static_cast<int64_t>(out.tokens[0].size() + out.tokens[1].size()) > kHeldTokens) flush();
    int p = part_of();
    if (!parsed) {
      std::vector<int32_t>& tokens = out.tokens[p];
      const size_t first = tokens.size();
      try {
        if (tail || needed[p]) encoder.encode(piece, tokens);
      } catch (const TextError&) {
        tokens.resize(first);  // undoes the piece: it is visited again after repair, or the build ends
        throw;
      }
      if ((tail || needed[p]) && piece.begins) out.starts[p].push_back(static_cast<int64_t>(first));
      document += piece.ends ? 1 : 0;
      return;
    }
    ids.clear();
    encoder.encode(piece, ids);
    bool begins = piece.begins;
    encoder.each_document(piece, ids, [&](std::span<const int32_t> part, bool ends) {
      p = part_of();
      if (tail || needed[p]) {
        if (begins) out.starts[p].push_back(static_cast<int64_t>(out.tokens[p].size()));
        out.tokens[p].insert(out.tokens[p].end(), part.begin(), part.end());
      }
      begins = ends;
      document += ends ? 1 : 0;
    });
  };
  reader.read(block, check, visit, turn);
}

void Builder::write_parts() {
  tokenizer_ = tokenizer_from_json(plan_.tokenizer_json);
  const bool wide = tokenizer_->vocab_size() > 65536;
  BuildJournal& journal = claim_.journal();
  PartWriter writers[2] = {PartWriter({options_.out, Part::kTrain, plan_, wide, journal}),
                           PartWriter({options_.out, Part::kValidation, plan_, wide, journal})};
  for (const Part part : kParts) journal.name_shards(part, plan_.num_shards(part));
  result_.shards_kept = 0;
  for (const BuildJournal::Entry& entry : journal.finished_shards()) {
    if (!text_known(entry)) continue;
    writers[static_cast<int>(entry.part)].mark_done(entry.shard, entry.info);
    ++result_.shards_kept;
  }
  const int64_t missing = writers[0].tokens_missing() + writers[1].tokens_missing();
  check_space(missing * (wide ? 4 : 2) + missing / 50 + (plan_.documents < 4096 ? 1 : 8) * int64_t{262'144});
  const BlockReader reader(sources_, document_rules(tokenizer_->split_points(), tokenizer_.get()));
  int64_t done = 0;
  std::vector<Digest> digests;
  const auto produce = [&](int64_t i, int, const BlockReader::Turn& turn) { return encode(i, reader, writers, turn); };
  ordered_parallel(threads_, static_cast<int64_t>(plan_.blocks.size()), produce, [&](int64_t i, Encoded encoded) {
    journal.note_block(i, encoded.digest);
    digests.push_back(encoded.digest);
    write(i, encoded, true, writers);
    done += plan_.blocks[i].end - plan_.blocks[i].begin;
    report(BuildProgress::Phase::kWrite, done);
  });
  Manifest& m = result_.manifest;
  m = Manifest{};
  m.source_digest = digest_of_all(digests).hex();
  for (const Part part : kParts) {
    PartInfo& info = m.part(part);
    info.shards = writers[static_cast<int>(part)].finish();
    for (const ShardInfo& shard : info.shards) {
      info.tokens += shard.tokens;
      info.documents += shard.documents;
    }
  }
  m.tokenizer_json = plan_.tokenizer_json;
  m.tokenizer_hash = tokenizer_->hash();
  m.vocab_size = tokenizer_->vocab_size();
  m.eod_id = tokenizer_->eod_id();
  m.wide = wide;
}

void Builder::plan_and_write() {
  resumed_ = resume_plan();
  try {
    if (!resumed_) make_plan();
    write_parts();
  } catch (const SourceChanged& changed) {
    if (!resumed_) {
      throw input_error("data build", changed.what, " changed while it was read; run the build again when it no longer",
                        " changes");
    }
    note(str_cat(changed.what, " is not the text that the unfinished build in ", options_.out,
                 " was reading; starting over"));
    fs::remove(folder_.at("build.plan"));
    plan_and_write();
  }
}

BuildReport Builder::run() {
  const auto stdins = std::count(options_.inputs.begin(), options_.inputs.end(), "-");
  if (stdins > 1)
    throw input_error("data build", "expected standard input (-) at most once, got it ", stdins,
                      " times; remove the others");
  std::optional<Manifest> old;
  if (fs::exists(folder_.at("manifest.json")))
    old = options_.overwrite ? manifest_to_replace(folder_) : read_manifest(options_.out);
  const bool only_compares = old && !options_.overwrite && stdins == 0;  // a comparison writes no files
  if (!only_compares) claim_.refuse_foreign(old ? &*old : nullptr);
  if (old && options_.overwrite) claim_.refuse_replaced(*old);
  if (stdins == 1) {
    claim_.begin();
    spool_descriptor(options_.stdin_descriptor, folder_.spool());
  }
  const auto look = [&](int64_t done, int64_t total) {
    if (options_.progress) options_.progress({BuildProgress::Phase::kLook, done, total});
  };
  sources_ = list_sources({.inputs = options_.inputs,
                           .format = options_.format,
                           .text_field = options_.text_field,
                           .skip_binary = options_.skip_binary,
                           .hidden = options_.include_hidden,
                           .out = options_.out,
                           .spool = folder_.spool(),
                           .threads = threads_,
                           .block_bytes = options_.block_bytes,
                           .progress = look});
  check_tokens();
  check_options();
  result_.other_entries = sources_.other_entries;
  result_.binary_files = sources_.binary_files;
  result_.hidden_files = sources_.hidden_files;
  fingerprint_ = fingerprint();
  if (old && !options_.overwrite) {
    compare_with_finished(*old);
  } else {
    claim_.begin();
    if (old) claim_.remove_dataset(*old);
    plan_and_write();
    Manifest& m = result_.manifest;
    m.validation_share = options_.validation;
    m.validation_rule = name_of(plan_.rule);
    m.source_fingerprint = fingerprint_;
    m.source_files = static_cast<int64_t>(sources_.files.size());
    m.source_bytes = sources_.bytes;
    m.source_empty_documents = plan_.empty_documents + sources_.empty_files;
    m.special_tokens = name_of(options_.special_tokens);
    m.special_spellings = plan_.special_spellings;
    if (options_.bad_lines != BadLines::kStop) m.bad_lines = name_of(options_.bad_lines);
    m.bad_lines_left_out = plan_.bad_lines;
    m.bad_places = plan_.bad_places;
    io::write_file_atomically(folder_.at("manifest.json"), manifest_text(m));
  }
  claim_.finish();
  return result_;
}

}  // namespace

BuildReport build_dataset(const BuildOptions& options) {
  ASHLAR_CHECK(options.shard_tokens > 0 && options.shard_tokens % kChunkTokens == 0, "shard_tokens ",
               options.shard_tokens);
  ASHLAR_CHECK(options.validation >= 0 && options.validation < 1, "validation ", options.validation);
  ASHLAR_CHECK(options.block_bytes >= 16, "block_bytes ", options.block_bytes);
  try {
    return Builder(options).run();
  } catch (const fs::filesystem_error& e) {
    throw io::system_error("data build", "access", e.path1(), e.code().value());
  }
}

}  // namespace ashlar::data
