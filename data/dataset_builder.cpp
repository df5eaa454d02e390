#include "data/dataset_builder.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <thread>

#include "core/base/error.h"
#include "core/base/hex.h"
#include "core/base/philox.h"
#include "core/io/atomic_file.h"
#include "core/io/checksum.h"
#include "core/io/posix_file.h"
#include "data/block_reader.h"
#include "data/build_journal.h"
#include "data/build_plan.h"
#include "data/ordered_parallel.h"
#include "data/output_folder.h"
#include "data/part_writer.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;

class Builder {
 public:
  explicit Builder(const BuildOptions& options)
      : options_(options),
        folder_(options.out),
        threads_(options.threads > 0 ? options.threads
                                     : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))),
        journal_(options.out) {}

  BuildReport run();

 private:
  void note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }
  void report(BuildProgress::Phase phase, int64_t bytes) const {
    if (options_.progress) options_.progress({phase, bytes, sources_.bytes});
  }
  std::string fingerprint() const;
  bool settle_with_earlier_dataset(const std::string& fingerprint);
  void remove_unfinished();
  void make_plan(const std::string& fingerprint);
  void check_space(int64_t bytes) const;
  struct Encoded {
    std::vector<int32_t> tokens[2];
    std::vector<int64_t> starts[2];
  };
  Encoded encode(int64_t block, const BlockReader& reader, const PartWriter* writers) const;
  void write_parts();

  const BuildOptions& options_;
  OutputFolder folder_;
  int threads_;
  BuildJournal journal_;
  SourceList sources_;
  BuildPlan plan_;
  std::unique_ptr<Tokenizer> tokenizer_;
  BuildReport result_;
};

std::string Builder::fingerprint() const {
  uint64_t hash = site_of(str_cat("build 1 ", options_.tokenizer, " ", std::bit_cast<uint64_t>(options_.validation),
                                  " ", options_.text_field, " ", options_.shard_tokens, " ", options_.block_bytes));
  for (const SourceFile& f : sources_.files) {
    hash = site_of(str_cat(hash, " ", f.shown, " ", f.bytes, " ", f.modified_ns, " ", f.json_lines ? 1 : 0));
    // Standard input has no name or time of its own.
    if (f.shown != f.path) hash = site_of(str_cat(hash, " ", io::sum_file(f.path).crc32));
  }
  return hex64(hash);
}

bool Builder::settle_with_earlier_dataset(const std::string& fingerprint) {
  if (!fs::exists(folder_.at("manifest.json"))) return false;
  if (options_.overwrite) {
    fs::remove(folder_.at("manifest.json"));
    io::sync_directory(options_.out);
    remove_unfinished();
    return false;
  }
  const Manifest old = read_manifest(options_.out);
  if (old.source_fingerprint != fingerprint) {
    throw input_error("data build", options_.out, " already holds a dataset made of other inputs or options;",
                      " choose another --out, or replace it with --overwrite");
  }
  result_.manifest = old;
  result_.already_complete = true;
  return true;
}

void Builder::remove_unfinished() {
  journal_.remove();
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.out)) {
    const std::string name = entry.path().filename().string();
    for (const Part part : kParts) {
      const bool shard =
          name.starts_with(str_cat(name_of(part), "-")) && (name.ends_with(".h5") || name.ends_with(".h5.partial"));
      if (shard) fs::remove(entry.path());
    }
  }
  fs::remove(folder_.at("build.plan"));
}

void Builder::make_plan(const std::string& fingerprint) {
  if (fs::exists(folder_.at("build.plan"))) {
    plan_ = parse_plan(io::read_text_file(folder_.at("build.plan"), io::kAnySize));
    if (plan_.fingerprint == fingerprint) return;
    note(str_cat(options_.out, " held an unfinished build of other inputs or options; starting over"));
    remove_unfinished();
  }
  plan_ = BuildPlan{.fingerprint = fingerprint, .shard_tokens = options_.shard_tokens};
  plan_.blocks = cut_into_blocks(sources_, options_.block_bytes);
  std::vector<std::unique_ptr<CorpusScan>> scans;
  for (int w = 0; w < threads_; ++w) scans.push_back(make_corpus_scan(options_.tokenizer));
  const BlockReader reader(sources_, scans[0]->cut_rule(), options_.text_field);
  PlanBuilder builder(plan_, options_.validation);
  int64_t done = 0;
  const auto count = [&](int64_t i, int worker) {
    const Block& block = plan_.blocks[i];
    CorpusScan& scan = *scans[worker];
    BlockCount counted;
    const bool last = block.end == sources_.files[block.file].bytes;
    if (scan.one_token_per_byte() && !sources_.files[block.file].json_lines) {
      counted.pieces.push_back({.tokens = block.end - block.begin + (last ? 1 : 0), .ends = last});
      return counted;
    }
    counted.empty_documents = reader.read(block, [&](const DocumentPiece& piece) {
      counted.pieces.push_back({.tokens = scan.add(piece.text) + (piece.ends ? 1 : 0), .ends = piece.ends});
    });
    return counted;
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

void Builder::check_space(int64_t bytes) const {
  std::error_code error;
  const fs::space_info space = fs::space(options_.out, error);
  if (!error && space.available < static_cast<uint64_t>(bytes)) {
    throw resource_error("data build", options_.out, " needs ", bytes / 1'000'000 + 1, " MB more, the disk has ",
                         space.available / 1'000'000, " MB free; free some or choose another --out");
  }
}

Builder::Encoded Builder::encode(int64_t i, const BlockReader& reader, const PartWriter* writers) const {
  const Block& block = plan_.blocks[i];
  bool needed[2];
  Encoded out;
  for (const Part part : kParts) {
    const int p = static_cast<int>(part);
    const int64_t begin = plan_.part_start(part, i), end = plan_.part_start(part, i + 1);
    needed[p] = writers[p].needs(begin, end);
    if (needed[p]) out.tokens[p].reserve(static_cast<size_t>(end - begin));
  }
  if (!needed[0] && !needed[1]) return out;
  const int32_t eod = tokenizer_->eod_id();
  const bool tail = plan_.rule == SplitRule::kTail;
  int64_t document = block.first_document;
  reader.read(block, [&](const DocumentPiece& piece) {
    // Under the tail rule everything goes to the first list and is parted below.
    const int p = !tail && plan_.rule != SplitRule::kNone && is_validation_document(plan_.share, document) ? 1 : 0;
    document += piece.ends ? 1 : 0;
    if (!tail && !needed[p]) return;
    if (piece.begins) out.starts[p].push_back(static_cast<int64_t>(out.tokens[p].size()));
    tokenizer_->encode(piece.text, out.tokens[p]);
    if (piece.ends) out.tokens[p].push_back(eod);
  });
  if (tail && plan_.part_start(Part::kValidation, i + 1) > 0) {
    const int64_t keep = std::max<int64_t>(0, plan_.cut - block.stream_start);
    // The part begins with a document, if only with the rest of one.
    if (plan_.part_start(Part::kValidation, i) == 0) out.starts[1].push_back(0);
    std::vector<int64_t>& starts = out.starts[0];
    const auto first = std::lower_bound(starts.begin(), starts.end(), keep);
    for (auto it = first; it != starts.end(); ++it) {
      if (*it > keep || out.starts[1].empty()) out.starts[1].push_back(*it - keep);
    }
    starts.erase(first, starts.end());
    out.tokens[1].assign(out.tokens[0].begin() + keep, out.tokens[0].end());
    out.tokens[0].resize(static_cast<size_t>(keep));
  }
  return out;
}

void Builder::write_parts() {
  tokenizer_ = tokenizer_from_json(plan_.tokenizer_json);
  const bool wide = tokenizer_->vocab_size() > 65536;
  PartWriter writers[2] = {PartWriter({options_.out, Part::kTrain, plan_, wide, journal_}),
                           PartWriter({options_.out, Part::kValidation, plan_, wide, journal_})};
  for (const BuildJournal::Entry& entry : journal_.read()) {
    writers[static_cast<int>(entry.part)].mark_done(entry.shard, entry.info);
    ++result_.shards_kept;
  }
  const int64_t missing = writers[0].tokens_missing() + writers[1].tokens_missing();
  check_space(missing * (wide ? 4 : 2) + missing / 50 + (plan_.documents < 4096 ? 1 : 8) * int64_t{262'144});
  const BlockReader reader(sources_, tokenizer_->cut_rule(), options_.text_field);
  int64_t done = 0;
  const auto produce = [&](int64_t i, int) { return encode(i, reader, writers); };
  ordered_parallel(threads_, static_cast<int64_t>(plan_.blocks.size()), produce,
                   [&](int64_t i, const Encoded& encoded) {
                     for (const Part part : kParts) {
                       const int p = static_cast<int>(part);
                       const int64_t begin = plan_.part_start(part, i), end = plan_.part_start(part, i + 1);
                       if (!writers[p].needs(begin, end)) continue;
                       if (static_cast<int64_t>(encoded.tokens[p].size()) != end - begin) {
                         throw input_error("data build", sources_.files[plan_.blocks[i].file].shown,
                                           " changed while it was read: ", end - begin, " tokens at first, now ",
                                           encoded.tokens[p].size(), "; run the build again when it is at rest");
                       }
                       writers[p].feed(begin, encoded.tokens[p], encoded.starts[p]);
                     }
                     done += plan_.blocks[i].end - plan_.blocks[i].begin;
                     report(BuildProgress::Phase::kWrite, done);
                   });
  Manifest& m = result_.manifest;
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

BuildReport Builder::run() {
  const auto stdins = std::count(options_.inputs.begin(), options_.inputs.end(), "-");
  if (stdins > 1)
    throw input_error("data build", "standard input (-) is named ", stdins, " times; it can be read once");
  if (stdins == 1) spool_descriptor(options_.stdin_descriptor, folder_.spool());
  sources_ = list_sources(options_.inputs, options_.format, options_.out, folder_.spool());
  result_.other_entries = sources_.other_entries;
  const std::string print = fingerprint();
  if (!settle_with_earlier_dataset(print)) {
    make_plan(print);
    write_parts();
    Manifest& m = result_.manifest;
    m.validation_share = options_.validation;
    m.validation_rule = name_of(plan_.rule);
    m.source_fingerprint = print;
    m.source_files = static_cast<int64_t>(sources_.files.size());
    m.source_bytes = sources_.bytes;
    m.source_empty_documents = plan_.empty_documents + sources_.empty_files;
    io::write_file_atomically(folder_.at("manifest.json"), manifest_text(m));
  }
  std::error_code ignored;
  for (const char* leftover : {"build.plan", "build.journal"}) fs::remove(folder_.at(leftover), ignored);
  return result_;
}

}  // namespace

BuildReport build_dataset(const BuildOptions& options) {
  ASHLAR_CHECK(options.shard_tokens > 0 && options.shard_tokens % kChunkTokens == 0, "shard_tokens ",
               options.shard_tokens);
  ASHLAR_CHECK(options.validation >= 0 && options.validation < 1, "validation ", options.validation);
  ASHLAR_CHECK(options.block_bytes >= 16, "block_bytes ", options.block_bytes);
  make_corpus_scan(options.tokenizer);  // an unknown kind is said before anything is touched
  try {
    return Builder(options).run();
  } catch (const fs::filesystem_error& e) {
    throw io::system_error("data build", "work with", e.path1(), e.code().value());
  }
}

}  // namespace ashlar::data
