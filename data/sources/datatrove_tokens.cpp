#include "data/sources/datatrove_tokens.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <ranges>
#include <span>
#include <string_view>

#include "core/base/error.h"
#include "core/base/printable.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIdsEnd = ".ds", kIndexEnd = ".index", kMetadataEnd = ".metadata", kLossEnd = ".loss";
constexpr std::string_view kUnknownTokenizer = "Unknown Tokenizer";
constexpr int64_t kMaxMetadataBytes = 65536;

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// Returns the number at the beginning of a text; -1 if there is none.
int64_t number_in(std::string_view text) {
  int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// What X.ds.metadata says: "tokenizer|bytes of an id", number of ids, and this number for people, a line each.
struct DatatroveMetadata {
  std::string tokenizer;  ///< empty if unknown
  int64_t width = 0, tokens = 0;
};

DatatroveMetadata read_metadata(const std::string& path) {
  const std::string text = io::read_text_file(path, kMaxMetadataBytes);
  const std::string_view all = text;
  const std::string_view first = all.substr(0, all.find('\n'));
  const size_t bar = first.rfind('|');
  DatatroveMetadata metadata;
  if (bar != std::string_view::npos && first.size() < all.size()) {
    metadata.width = number_in(first.substr(bar + 1));
    metadata.tokens = number_in(all.substr(first.size() + 1));
  }
  if ((metadata.width != 2 && metadata.width != 4) || metadata.tokens < 0) {
    throw input_error("input", path, ": expected datatrove's TOKENIZER|2 or TOKENIZER|4 and the number of ids, got ",
                      printable(first.substr(0, 60)), "; write the tokens again with datatrove");
  }
  const std::string_view name = first.substr(0, bar);
  if (!name.starts_with(kUnknownTokenizer)) metadata.tokenizer = name;
  return metadata;
}

/// Returns X.ds for 000_X.ds; "" if the name does not begin with a number.
std::string owner_of_part(const std::string& path) {
  const fs::path file(path);
  const std::string name = file.filename();
  const size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string::npos || name[digits] != '_') return "";
  return (file.parent_path() / name.substr(digits + 1)).string();
}

}  // namespace

std::string datatrove_owner(const std::string& path) {
  for (const std::string_view end : {kIndexEnd, kMetadataEnd, kLossEnd}) {
    const std::string owner = path.ends_with(end) ? path.substr(0, path.size() - end.size()) : "";
    if (owner.ends_with(kIdsEnd)) return owner;
  }
  return "";
}

bool has_datatrove_parts(const std::string& owner) {
  std::error_code error;
  const fs::path folder = fs::path(owner).parent_path();
  for (auto it = fs::directory_iterator(folder.empty() ? "." : folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    if (fs::path(owner_of_part(it->path().string())).filename() == fs::path(owner).filename()) return true;
  }
  return false;
}

std::optional<TokenLayout> datatrove_tokens(const std::string& path, int64_t bytes, const std::string& shown) {
  if (!path.ends_with(kIdsEnd)) return std::nullopt;
  const std::string index = str_cat(path, kIndexEnd), own = str_cat(path, kMetadataEnd);
  const std::string shared = owner_of_part(path).empty() ? "" : str_cat(owner_of_part(path), kMetadataEnd);
  const bool indexed = is_file(index), described = is_file(own) || is_file(shared);
  if (!indexed && !described) return std::nullopt;
  DatatroveMetadata metadata;
  if (described) metadata = read_metadata(is_file(own) ? own : shared);
  const int64_t documents_end = indexed ? DatatroveIndex(index).tokens() : -1;
  int64_t width = metadata.width;
  if (!described) width = documents_end > 0 && bytes / documents_end >= 4 ? 4 : 2;
  TokenLayout layout = raw_tokens(width == 4 ? TokenType::kUint32 : TokenType::kUint16, bytes, kDatatroveForm, shown);
  const auto check = [&](int64_t tokens, const std::string& by) {
    if (tokens == layout.tokens) return;
    throw input_error("input", shown, layout.tokens < tokens ? " is truncated: " : " does not match: ", by, " says ",
                      tokens, " ids, the file has ", layout.tokens, " of ", name_of(layout.type),
                      "; copy or download the files again");
  };
  if (indexed) check(documents_end, index);
  if (is_file(own)) check(metadata.tokens, own);
  layout.index = indexed ? index : "";
  layout.tokenizer = metadata.tokenizer;
  layout.loss_mask = is_file(str_cat(path, kLossEnd));
  return layout;
}

DatatroveIndex::DatatroveIndex(const std::string& path) : file_(path) {
  const auto refuse = [&](const auto&... what) { return input_error("input", path, ": datatrove index ", what...); };
  if (file_.size_bytes() % 8 != 0) throw refuse("is truncated inside a number; copy or download the file again");
  documents_ = file_.size_bytes() / 8;
  constexpr int64_t kPiece = 65536;
  std::vector<int64_t> ends(kPiece);
  for (int64_t at = 0; at < documents_; at += kPiece) {
    const int64_t n = std::min(kPiece, documents_ - at);
    file_.read_at(at * 8, std::as_writable_bytes(std::span(ends).first(static_cast<size_t>(n))));
    for (int64_t i = 0; i < n; ++i) {
      if (ends[i] < tokens_)
        throw refuse("has document ", at + i, " out of order: it ends at ", ends[i], ", the one before at ", tokens_,
                     "; copy or download the file again");
      tokens_ = ends[i];
    }
  }
}

int64_t DatatroveIndex::end_of(int64_t document) const {
  int64_t end = 0;
  file_.read_at(document * 8, std::as_writable_bytes(std::span(&end, 1)));
  return end;
}

std::vector<int64_t> DatatroveIndex::starts(int64_t begin, int64_t end) const {
  const auto ends_before = [&](int64_t d) { return end_of(d) <= begin; };
  std::vector<int64_t> found;
  for (int64_t d = *std::ranges::partition_point(std::views::iota(int64_t{0}, documents_), ends_before); d < documents_;
       ++d) {
    const int64_t start = end_of(d);
    if (start > end) break;
    if (found.empty() || start > found.back()) found.push_back(start);
  }
  return found;
}

}  // namespace ashlar::data
