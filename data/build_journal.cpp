#include "data/build_journal.h"

#include <filesystem>
#include <sstream>

#include "core/base/hex.h"
#include "core/base/strings.h"
#include "core/io/checksum.h"

namespace ashlar::data {
namespace {

std::string join(const std::string& directory, const std::string& file) {
  return (std::filesystem::path(directory) / file).string();
}

}  // namespace

std::string shard_file(Part part, int64_t shard) {
  return str_cat(name_of(part), "-", absl::Dec(shard, absl::kZeroPad5), ".h5");
}

BuildJournal::BuildJournal(const std::string& directory)
    : directory_(directory), path_(join(directory, "build.journal")) {}

std::vector<BuildJournal::Entry> BuildJournal::read() const {
  std::vector<Entry> entries;
  if (!std::filesystem::exists(path_)) return entries;
  std::istringstream lines(io::read_text_file(path_, io::kAnySize));
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.rfind(' ');
    if (space == std::string::npos ||
        hex32(io::crc32(std::string_view(line).substr(0, space))) != line.substr(space + 1)) {
      continue;
    }
    std::istringstream fields(line);
    int part = 0;
    Entry entry{};
    ShardInfo& info = entry.info;
    std::string digest;
    fields >> part >> entry.shard >> info.tokens >> info.documents >> info.bytes >> info.crc32 >> digest;
    const std::optional<Digest> tokens = digest_from_hex(digest);
    if (!tokens) continue;  // of an earlier version
    info.digest = *tokens;
    entry.part = part == 0 ? Part::kTrain : Part::kValidation;
    info.file = shard_file(entry.part, entry.shard);
    const std::string path = join(directory_, info.file);
    if (!std::filesystem::exists(path)) continue;
    const io::FileSum sum = io::sum_file(path);
    if (sum.bytes == info.bytes && sum.crc32 == info.crc32) entries.push_back(entry);
  }
  return entries;
}

void BuildJournal::add(const Entry& entry) {
  const ShardInfo& info = entry.info;
  const std::string line = str_cat(static_cast<int>(entry.part), " ", entry.shard, " ", info.tokens, " ",
                                   info.documents, " ", info.bytes, " ", info.crc32, " ", info.digest.hex());
  // The newline in front ends a line that a kill has torn.
  io::append_durably(path_, str_cat("\n", line, " ", hex32(io::crc32(line)), "\n"));
}

void BuildJournal::remove() { std::filesystem::remove(path_); }

}  // namespace ashlar::data
