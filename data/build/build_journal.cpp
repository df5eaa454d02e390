#include "data/build/build_journal.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <sstream>

#include "core/base/error.h"
#include "core/base/hex.h"
#include "core/base/strings.h"
#include "core/io/atomic_file.h"
#include "core/io/checksum.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeader = "ashlar.build.journal 2\n";
/// Names of the auxiliary files of a build: every file except the shards and the finished manifest.
constexpr std::array<std::string_view, 7> kOwn = {
    "build.journal", "build.journal.partial", "build.plan",           "build.plan.partial",
    "stdin.spool",   "stdin.spool.partial",   "manifest.json.partial"};

std::string join(const std::string& directory, const std::string& file) {
  return (fs::path(directory) / file).string();
}

}  // namespace

std::string shard_file(Part part, int64_t shard) {
  return str_cat(name_of(part), "-", absl::Dec(shard, absl::kZeroPad5), ".h5");
}

std::optional<ShardName> shard_named(std::string_view file) {
  for (const Part part : kParts) {
    const std::string prefix = str_cat(name_of(part), "-");
    if (!file.starts_with(prefix)) continue;
    int64_t shard = -1;
    std::from_chars(file.data() + prefix.size(), file.data() + file.size(), shard);
    if (shard >= 0 && file == shard_file(part, shard)) return ShardName{part, shard};
  }
  return std::nullopt;
}

BuildJournal::BuildJournal(const std::string& directory)
    : directory_(directory), path_(join(directory, "build.journal")) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(path_, ignored))) return;
  const std::string text = fs::is_regular_file(path_, ignored) ? io::read_text_file(path_, io::kAnySize) : "?";
  const auto common = std::min(text.size(), kHeader.size());
  if (std::string_view(text).substr(0, common) != kHeader.substr(0, common)) {
    throw input_error("data build", path_, " is not a build journal of this version; ", directory,
                      " is unchanged: choose another --out, or move the files of that build away");
  }
  exists_ = true;
  whole_ = text.size() >= kHeader.size();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.rfind(' ');
    const bool good = space != std::string::npos &&
                      hex32(io::crc32(std::string_view(line).substr(0, space))) == line.substr(space + 1);
    if (good) believe(line.substr(0, space));
  }
}

void BuildJournal::believe(const std::string& line) {
  std::istringstream fields(line);
  std::string kind, digest;
  int part = 0;
  int64_t number = 0;
  fields >> kind;
  if (kind == "shards" && fields >> part >> number) {
    named_[part != 0] = std::max(named_[part != 0], number);
  } else if (kind == "block" && fields >> number >> digest) {
    if (const auto value = digest_from_hex(digest)) blocks_[number] = *value;
  } else if (kind == "shard") {
    Entry entry{};
    ShardInfo& info = entry.info;
    fields >> part >> entry.shard >> info.tokens >> info.documents >> info.bytes >> info.crc32 >> digest;
    const auto value = digest_from_hex(digest);
    if (!value) return;
    entry.part = part == 0 ? Part::kTrain : Part::kValidation;
    info.digest = *value;
    info.file = shard_file(entry.part, entry.shard);
    entries_.push_back(entry);
  }
}

void BuildJournal::begin() {
  if (whole_) return;
  // If the journal exists here, its header line is incomplete: a process was killed while it wrote this line. That
  // process has created no other files, since a build creates them only after the header line is durable.
  if (exists_) fs::remove(path_);
  io::append_durably(path_, kHeader);
  io::sync_directory(directory_);
  exists_ = whole_ = true;
}

void BuildJournal::remove() {
  fs::remove(path_);
  exists_ = whole_ = false;
}

void BuildJournal::start_over() {
  io::write_file_atomically(path_, kHeader);
  named_[0] = named_[1] = 0;
  entries_.clear();
  blocks_.clear();
  unwritten_.clear();
}

bool BuildJournal::names(const std::string& file) const {
  if (!exists_) return false;
  if (std::find(kOwn.begin(), kOwn.end(), file) != kOwn.end()) return whole_ || file == kOwn[0];
  const auto shard = shard_named(io::without_partial(file).string());
  return shard && shard->shard < named_shards(shard->part);
}

void BuildJournal::name_shards(Part part, int64_t count) {
  if (count <= named_shards(part)) return;
  append({str_cat("shards ", static_cast<int>(part), " ", count)});
  named_[static_cast<int>(part)] = count;
}

std::vector<BuildJournal::Entry> BuildJournal::finished_shards() const {
  std::vector<Entry> valid;
  for (const Entry& entry : entries_) {
    const std::string path = join(directory_, entry.info.file);
    if (!fs::exists(path)) continue;
    const io::FileSum sum = io::sum_file(path);
    if (sum.bytes == entry.info.bytes && sum.crc32 == entry.info.crc32) valid.push_back(entry);
  }
  return valid;
}

void BuildJournal::add(const Entry& entry) {
  const ShardInfo& info = entry.info;
  std::vector<std::string> lines = std::move(unwritten_);
  unwritten_.clear();
  lines.push_back(str_cat("shard ", static_cast<int>(entry.part), " ", entry.shard, " ", info.tokens, " ",
                          info.documents, " ", info.bytes, " ", info.crc32, " ", info.digest.hex()));
  append(lines);
}

void BuildJournal::note_block(int64_t block, const Digest& digest) {
  unwritten_.push_back(str_cat("block ", block, " ", digest.hex()));
}

const Digest* BuildJournal::block(int64_t block) const {
  const auto found = blocks_.find(block);
  return found == blocks_.end() ? nullptr : &found->second;
}

void BuildJournal::append(const std::vector<std::string>& lines) {
  std::string text = "\n";  // ends a last line that a kill has left incomplete
  for (const std::string& line : lines) text += str_cat(line, " ", hex32(io::crc32(line)), "\n");
  io::append_durably(path_, text);
}

}  // namespace ashlar::data
