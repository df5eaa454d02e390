#include "data/block_reader.h"

#include <algorithm>

#include "core/io/posix_file.h"
#include "data/json_line.h"

namespace ashlar::data {
namespace {

constexpr int64_t kMaxLineBytes = int64_t{256} << 20;
constexpr int64_t kReadAhead = int64_t{1} << 20;

/// Up to n bytes from `offset` into `out`; fewer only at the end of the file.
void read_piece(const io::InputFile& file, int64_t offset, int64_t n, std::string& out) {
  out.resize(static_cast<size_t>(n));
  out.resize(static_cast<size_t>(file.read_at_most(offset, std::as_writable_bytes(std::span(out)))));
}

/// The part of a block that can be searched: bytes of the file from `begin` on.
struct Loaded {
  int64_t begin = 0;
  std::string bytes;
};

/// Bytes of every line that starts in [block.begin, block.end): they may reach past its end.
Loaded load_lines(const io::InputFile& file, const Block& block) {
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
      throw input_error("data build", file.path().string(), ": a line is longer than ", kMaxLineBytes,
                        " bytes; is this JSON with one object a line?");
    }
  }
  loaded.bytes.erase(0, start);
  loaded.begin = look + static_cast<int64_t>(start);
  return loaded;
}

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

int64_t BlockReader::read(const Block& block, const Check& check, const Visit& visit) const {
  return sources_.files[block.file].json_lines ? read_lines(block, check, visit) : read_text(block, check, visit);
}

Digest BlockReader::digest(const Block& block) const {
  const SourceFile& source = sources_.files[block.file];
  if (source.json_lines) return digest_of(load_lines(io::InputFile(source.path), block).bytes);
  Digest digest;
  read_text(
      block, [&](const Digest& d) { digest = d; }, [](const DocumentPiece&) {});
  return digest;
}

int64_t BlockReader::read_text(const Block& block, const Check& check, const Visit& visit) const {
  constexpr int64_t kCutContext = 4;
  const SourceFile& source = sources_.files[block.file];
  const io::InputFile file(source.path);
  std::string bytes;
  read_piece(file, block.begin, block.end - block.begin + kCutContext, bytes);
  const bool last = block.end == source.bytes;
  const auto nominal = static_cast<size_t>(block.end - block.begin);
  if (last ? bytes.size() != nominal : bytes.size() < nominal) {
    throw input_error("data build", source.shown, " changed while it was read: ", source.bytes,
                      " bytes at first; run the build again when it is at rest");
  }
  const size_t start = block.begin == 0 ? 0 : first_cut(cut_rule_, bytes);
  const size_t stop = last ? nominal : nominal + first_cut(cut_rule_, std::string_view(bytes).substr(nominal));
  const std::string_view text = std::string_view(bytes).substr(start, std::max(start, stop) - start);
  check(digest_of(text));
  try {
    visit({.text = text, .begins = block.begin == 0, .ends = last});
  } catch (const TextError& e) {
    throw place_error(source, block.begin + static_cast<int64_t>(start + e.offset), e.reason);
  }
  return 0;
}

int64_t BlockReader::read_lines(const Block& block, const Check& check, const Visit& visit) const {
  const SourceFile& source = sources_.files[block.file];
  const io::InputFile file(source.path);
  const Loaded loaded = load_lines(file, block);
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
      read_json_field(line, text_field_, text);
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
                        str_cat("field \"", text_field_, "\", byte ", e.offset, " of the text: ", e.reason));
    }
  }
  return empty;
}

Error BlockReader::place_error(const SourceFile& source, int64_t offset, const std::string& reason) const {
  int64_t line = 1;
  const io::InputFile file(source.path);
  std::string bytes;
  for (int64_t at = 0; at < offset; at += kReadAhead) {
    read_piece(file, at, std::min(kReadAhead, offset - at), bytes);
    line += std::count(bytes.begin(), bytes.end(), '\n');
  }
  const char* hint = source.json_lines ? "" : " (the bytes tokenizer takes any file)";
  return input_error("data build", source.shown, ", line ", line, ", byte offset ", offset, ": ", reason, hint);
}

}  // namespace ashlar::data
