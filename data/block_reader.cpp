#include "data/block_reader.h"

#include <algorithm>

#include "core/io/posix_file.h"
#include "data/json_line.h"

namespace ashlar::data {
namespace {

constexpr int64_t kMaxLineBytes = int64_t{256} << 20;
constexpr int64_t kMaxDocumentBytes = int64_t{1} << 30;  // of one that must not be cut
constexpr int64_t kWordContext = int64_t{64} << 10;
constexpr int64_t kReadAhead = int64_t{1} << 20;

/// Up to n bytes from `offset` into `out`; fewer only at the end of the file.
void read_piece(SourceBytes& file, int64_t offset, int64_t n, std::string& out) {
  out.resize(static_cast<size_t>(n));
  out.resize(static_cast<size_t>(file.read_at_most(offset, std::as_writable_bytes(std::span(out)))));
}

/// The part of a block that can be searched: bytes of the file from `begin` on.
struct Loaded {
  int64_t begin = 0;
  std::string bytes;
};

/// Bytes of every line that starts in [block.begin, block.end): they may reach past its end.
Loaded load_lines(SourceBytes& file, const std::string& shown, const Block& block) {
  Loaded loaded;
  // The byte before the block tells whether a line starts at its first byte.
  const int64_t look = std::max<int64_t>(0, block.begin - 1);
  read_piece(file, look, block.end - look, loaded.bytes);
  size_t start = 0;
  if (block.begin > 0) {
    const size_t newline = loaded.bytes.find('\n');
    if (newline == std::string::npos || look + static_cast<int64_t>(newline) + 1 >= block.end) return {block.end, ""};
    start = newline + 1;
  }
  std::string more;
  while (!loaded.bytes.empty() && loaded.bytes.back() != '\n') {
    const int64_t at = look + static_cast<int64_t>(loaded.bytes.size());
    read_piece(file, at, kReadAhead, more);
    if (more.empty()) break;
    const size_t newline = more.find('\n');
    loaded.bytes.append(more, 0, newline == std::string::npos ? more.size() : newline + 1);
    if (static_cast<int64_t>(loaded.bytes.size()) > kMaxLineBytes) {
      throw input_error("data build", shown, ": a line is longer than ", kMaxLineBytes,
                        " bytes; is this JSON with one object a line?");
    }
  }
  loaded.bytes.erase(0, start);
  loaded.begin = look + static_cast<int64_t>(start);
  return loaded;
}

Error changed(const SourceFile& source) {
  return input_error("data build", source.shown, " changed while it was read: ", source.bytes,
                     " bytes at first; run the build again when it is at rest");
}

/// Where a word begins behind the first letter of `text`; 0 when nowhere.
size_t between_words(std::string_view text) {
  const auto letter = [&](size_t i) { return (text[i] | 0x20) >= 'a' && (text[i] | 0x20) <= 'z'; };
  for (size_t at = 1; at + 1 < text.size(); ++at)
    if (text[at] == ' ' && letter(at - 1) && letter(at + 1)) return at;
  return 0;
}

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

int64_t BlockReader::read(const Block& block, const Check& check, const Visit& visit) const {
  const SourceFile& source = sources_.files[block.file];
  if (source.tokens) return read_tokens(block, check, visit);
  return source.json_lines ? read_lines(block, check, visit) : read_text(block, check, visit);
}

Digest BlockReader::digest(const Block& block) const {
  const SourceFile& source = sources_.files[block.file];
  Digest digest;
  if (source.json_lines || source.tokens) {
    const std::shared_ptr<SourceBytes> file = open(block.file);
    if (source.json_lines) {
      digest = digest_of(load_lines(*file, source.shown, block).bytes);
    } else {
      std::string bytes;
      read_piece(*file, block.begin, block.end - block.begin, bytes);
      digest = digest_of(bytes);
    }
    done(block, *file);
    return digest;
  }
  read_text(
      block, [&](const Digest& d) { digest = d; }, [](const DocumentPiece&) {});
  return digest;
}

int64_t BlockReader::read_text(const Block& block, const Check& check, const Visit& visit) const {
  const int64_t context = rules_.between_words ? kWordContext : 4;
  const auto cut = [&](std::string_view from) {
    const size_t word = rules_.between_words ? between_words(from.substr(0, kWordContext)) : 0;
    return word > 0 ? word : first_cut(rules_.cut_rule, from);
  };
  const SourceFile& source = sources_.files[block.file];
  const std::shared_ptr<SourceBytes> file = open(block.file);
  std::string bytes;
  const bool last = block.end == source.bytes;
  if (rules_.cut_rule >= CutRule::kWords) return read_whole(block, *file, check, visit);
  read_piece(*file, block.begin, block.end - block.begin + context, bytes);
  done(block, *file);
  const auto nominal = static_cast<size_t>(block.end - block.begin);
  if (last ? bytes.size() != nominal : bytes.size() < nominal) {
    throw changed(source);
  }
  const size_t start = block.begin == 0 ? 0 : cut(bytes);
  const size_t stop = last ? nominal : nominal + cut(std::string_view(bytes).substr(nominal));
  const std::string_view text = std::string_view(bytes).substr(start, std::max(start, stop) - start);
  check(digest_of(text));
  try {
    visit({.text = text, .begins = block.begin == 0, .ends = last});
  } catch (const TextError& e) {
    throw place_error(source, block.begin + static_cast<int64_t>(start + e.offset), e.reason);
  }
  return 0;
}

int64_t BlockReader::read_whole(const Block& block, SourceBytes& file, const Check& check, const Visit& visit) const {
  const SourceFile& source = sources_.files[block.file];
  if (source.bytes > kMaxDocumentBytes) {
    throw input_error("data build", source.shown, " is one document of ", source.bytes, " bytes, and this tokenizer",
                      " takes documents whole, up to ", kMaxDocumentBytes, "; split the file, or make it JSONL");
  }
  std::string bytes;
  if (block.begin == 0) read_piece(file, 0, source.bytes + 1, bytes);
  done(block, file);
  if (block.begin == 0 && static_cast<int64_t>(bytes.size()) != source.bytes) throw changed(source);
  check(digest_of(bytes));
  try {
    visit({.text = bytes, .begins = block.begin == 0, .ends = block.end == source.bytes});
  } catch (const TextError& e) {
    throw place_error(source, static_cast<int64_t>(e.offset), e.reason);
  }
  return 0;
}

int64_t BlockReader::read_lines(const Block& block, const Check& check, const Visit& visit) const {
  const SourceFile& source = sources_.files[block.file];
  const std::shared_ptr<SourceBytes> file = open(block.file);
  const Loaded loaded = load_lines(*file, source.shown, block);
  done(block, *file);
  const std::string_view all = loaded.bytes;
  check(digest_of(all));
  std::string text;
  int64_t empty = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t stop = std::min(all.find('\n', at), all.size());
    const std::string_view line = all.substr(at, stop - at);
    const int64_t offset = loaded.begin + static_cast<int64_t>(at);
    at = stop + 1;
    if (blank(line)) continue;
    try {
      read_json_field(line, rules_.text_field, text);
    } catch (const TextError& e) {
      throw place_error(source, offset + static_cast<int64_t>(e.offset), e.reason);
    }
    if (text.empty()) {
      ++empty;
      continue;
    }
    try {
      visit({.text = text, .begins = true, .ends = true});
    } catch (const TextError& e) {
      // The offset is in the text after its escapes are undone; the line is what helps.
      throw place_error(source, offset,
                        str_cat("field \"", rules_.text_field, "\", byte ", e.offset, " of the text: ", e.reason));
    }
  }
  return empty;
}

/// Documents end with each end-of-document id, or where the index says, and with the file.
int64_t BlockReader::read_tokens(const Block& block, const Check& check, const Visit& visit) const {
  const SourceFile& source = sources_.files[block.file];
  const TokenLayout& layout = *source.tokens;
  const int64_t size = bytes_of(layout.type);
  // The id before the block tells whether a document begins with its first.
  const int64_t look = block.begin > 0 && layout.index.empty() ? size : 0;
  const std::shared_ptr<SourceBytes> file = open(block.file);
  std::string bytes;
  read_piece(*file, block.begin - look, block.end - block.begin + look, bytes);
  done(block, *file);
  if (static_cast<int64_t>(bytes.size()) != block.end - block.begin + look) throw changed(source);
  const std::string_view own = std::string_view(bytes).substr(static_cast<size_t>(look));
  check(digest_of(own));
  const int64_t first = block.begin / size, last = block.end / size;
  std::vector<int32_t> ids;
  if (const auto outside = append_ids(own, layout.type, rules_.vocab_size, ids)) {
    const int64_t token = first + outside->index;
    throw input_error("data build", source.shown, ": token ", token, " (byte ", layout.offset + token * size,
                      ") is id ", outside->id, ", outside the vocabulary of ", rules_.vocab_size,
                      "; name the tokenizer that made this file (", layout.form, ", ", name_of(layout.type),
                      ") with --tokenizer");
  }
  bool begins = block.begin == 0;
  std::vector<int64_t> ends;  // counted from the block's first id
  if (layout.index.empty()) {
    std::vector<int32_t> before;
    append_ids(std::string_view(bytes).substr(0, static_cast<size_t>(look)), layout.type, rules_.vocab_size, before);
    begins = begins || (!before.empty() && before[0] == rules_.eod_id);
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == rules_.eod_id) ends.push_back(static_cast<int64_t>(i) + 1);
    if (block.end == source.bytes && (ends.empty() || ends.back() < last - first)) ends.push_back(last - first);
  } else {
    const std::shared_ptr<const MegatronIndex> index = index_of(block.file);
    begins = begins || !index->starts(first - 1, first).empty();
    for (const int64_t start : index->starts(first, last)) ends.push_back(start - first);
  }
  int64_t at = 0;
  const auto piece = [&](int64_t end, bool whole) {
    visit({.ids = std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(end - at)),
           .has_ids = true,
           .begins = begins,
           .ends = whole});
    at = end;
    begins = whole;
  };
  for (const int64_t end : ends) piece(end, true);
  if (at < last - first) piece(last - first, false);
  return 0;
}

std::shared_ptr<SourceBytes> BlockReader::open(int64_t file) const {
  const SourceFile& source = sources_.files[file];
  if (source.packing == Packing::kNone) return std::make_shared<SourceBytes>(source);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<SourceBytes>& bytes = packed_[file];
  if (bytes == nullptr) bytes = std::make_shared<SourceBytes>(source);
  return bytes;
}

void BlockReader::done(const Block& block, SourceBytes& bytes) const {
  if (sources_.files[block.file].packing == Packing::kNone || !bytes.release(block.begin, block.end)) return;
  const std::lock_guard lock(mutex_);
  packed_.erase(block.file);
}

std::shared_ptr<const MegatronIndex> BlockReader::index_of(int64_t file) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const MegatronIndex>& index = indexes_[file];
  if (index == nullptr) index = std::make_shared<MegatronIndex>(sources_.files[file].tokens->index);
  return index;
}

Error BlockReader::place_error(const SourceFile& source, int64_t offset, const std::string& reason) const {
  int64_t line = 1;
  SourceBytes file(source);
  std::string bytes;
  for (int64_t at = 0; at < offset; at += kReadAhead) {
    read_piece(file, at, std::min(kReadAhead, offset - at), bytes);
    file.release(at, std::min(offset, at + kReadAhead));
    line += std::count(bytes.begin(), bytes.end(), '\n');
  }
  const char* hint = source.json_lines ? "" : " (the bytes tokenizer takes any file)";
  return input_error("data build", source.shown, ", line ", line, ", byte offset ", offset, ": ", reason, hint);
}

}  // namespace ashlar::data
