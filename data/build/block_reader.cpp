#include "data/build/block_reader.h"

#include <algorithm>

#include "core/base/utf8.h"
#include "core/io/posix_file.h"
#include "data/sources/datatrove_tokens.h"
#include "data/sources/json_array.h"
#include "data/sources/json_line.h"
#include "data/tokenizer/utf8_repair.h"

namespace ashlar::data {
namespace {

constexpr int64_t kMaxLineBytes = int64_t{256} << 20;
constexpr int64_t kMaxDocumentBytes = int64_t{1} << 30;  // maximum bytes of a document that must not be split
constexpr int64_t kWordContext = int64_t{64} << 10;
constexpr int64_t kReadAhead = int64_t{1} << 20;
constexpr int64_t kMaxUnsplitBytes = int64_t{32} << 20;  // maximum bytes of text without a split point
constexpr int64_t kSearchBytes = int64_t{16} << 10;      // bytes first read after a block to find a split point
constexpr size_t kLongText = size_t{1} << 20;
constexpr int64_t kLongBytes = int64_t{16} << 20;  // texts with more bytes are loaded one at a time
constexpr int64_t kLongPages = int64_t{64} << 20;  // pages of a Parquet file with more bytes are loaded one at a time

/// Reads n bytes from `offset` into `out`, or fewer at the end of the file.
void read_piece(SourceBytes& file, int64_t offset, int64_t n, std::string& out) {
  out.resize(static_cast<size_t>(n));
  out.resize(static_cast<size_t>(file.read_at_most(offset, std::as_writable_bytes(std::span(out)))));
}

/// Bytes loaded from a file. The first byte is at offset `begin` of the file.
struct Loaded {
  int64_t begin = 0;
  std::string bytes;
};

/// Loads every line that starts in [block.begin, block.end). The last line may extend past block.end.
Loaded load_lines(SourceBytes& file, const std::string& shown, const Block& block, const BlockReader::Turn& turn) {
  Loaded loaded;
  // The byte before the block shows whether a line starts at the first byte of the block.
  const int64_t look = std::max<int64_t>(0, block.begin - 1);
  read_piece(file, look, block.end - look, loaded.bytes);
  size_t start = 0;
  if (block.begin > 0) {
    const size_t newline = loaded.bytes.find('\n');
    if (newline == std::string::npos || look + static_cast<int64_t>(newline) + 1 >= block.end) return {block.end, ""};
    start = newline + 1;
  }
  loaded.begin = look + static_cast<int64_t>(start);
  if (loaded.bytes.empty() || loaded.bytes.back() == '\n') {
    loaded.bytes.erase(0, start);
    return loaded;
  }
  // The last line may continue after the block. The loop searches for the end of this line. If the end is in the first
  // kReadAhead bytes after the block, these bytes are appended. Otherwise the line is long, and all lines are loaded
  // again in one read. Memory therefore never has two copies of a long line.
  const int64_t line = look + static_cast<int64_t>(loaded.bytes.rfind('\n') + 1);
  const int64_t had = look + static_cast<int64_t>(loaded.bytes.size());
  int64_t end = had;
  std::string more;
  for (bool found = false, waited = false; !found;) {
    if (end - line > kLongBytes && !waited) {
      turn();
      waited = true;
    }
    read_piece(file, end, kReadAhead, more);
    if (more.empty()) break;
    const size_t newline = more.find('\n');
    found = newline != std::string::npos;
    if (found) more.resize(newline + 1);
    end += static_cast<int64_t>(more.size());
    if (end - line > kMaxLineBytes) {
      throw input_error("input", shown, ": the line at byte offset ", std::max<int64_t>(0, line), " is longer than ",
                        kMaxLineBytes,
                        " bytes; expected one JSON object per line: split the line, or set another --format");
    }
  }
  if (end - had == static_cast<int64_t>(more.size())) {
    loaded.bytes.erase(0, start);
    loaded.bytes += more;
    return loaded;
  }
  std::string().swap(more);
  std::string().swap(loaded.bytes);
  read_piece(file, loaded.begin, end - loaded.begin, loaded.bytes);
  return loaded;
}

Error changed(const SourceFile& source) {
  return input_error("input", source.shown, " changed while it was read: its size was ", source.bytes,
                     " bytes at the start of the build; run the build again when it no longer changes");
}

/// Finds a place where `text` may be split: returns the index of the first space between two ASCII letters. Returns 0
/// if there is no such space.
size_t between_words(std::string_view text) {
  const auto letter = [&](size_t i) { return (text[i] | 0x20) >= 'a' && (text[i] | 0x20) <= 'z'; };
  for (size_t at = 1; at + 1 < text.size(); ++at)
    if (text[at] == ' ' && letter(at - 1) && letter(at + 1)) return at;
  return 0;
}

/// The pages of a block of a Parquet file.
struct LoadedRows {
  const PageRun* run = nullptr;
  TextColumn::Stored stored;
};

LoadedRows load_rows(const SourceFile& source, const Block& block, const BlockReader::Turn& turn) {
  const PageRun* const run = source.rows->find(block.begin, block.end);
  ASHLAR_CHECK(run != nullptr, "bytes ", block.begin, " to ", block.end);  // the fingerprint has the layout
  if (source.rows->bytes_in_memory(*run) > kLongPages) turn();
  std::optional<TextColumn::Stored> stored = source.rows->load(*run);
  if (!stored) throw changed(source);
  return {run, *std::move(stored)};
}

/// Returns the offset of the first invalid byte, or the size of the text.
size_t first_invalid(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<uint8_t>(text[at]) < 0x80U) {
      ++at;
      continue;
    }
    const CodePoint point = next_code_point(text.substr(at));
    if (point.bytes == 0) break;
    at += static_cast<size_t>(point.bytes);
  }
  return at;
}

std::string unsplit_reason(int64_t bytes) {
  return str_cat("the next ", bytes >> 20, " MiB have no place where this tokenizer may split text, such as a space ",
                 "after a letter; insert line breaks if this is text");
}

bool blank_text(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

ReadCounts BlockReader::read(const Block& block, const Check& check, const Visit& visit, const Turn& turn) const {
  const SourceFile& source = sources_.files[block.file];
  Reading reading{.check = check, .visit = visit, .turn = turn};
  if (source.tokens) {
    read_tokens(block, reading);
  } else if (source.shape == TextShape::kJsonLines) {
    read_lines(block, reading);
  } else if (source.shape == TextShape::kJsonArray) {
    read_array(block, reading);
  } else if (source.shape == TextShape::kRows) {
    read_rows(block, reading);
  } else {
    read_text(block, reading);
  }
  return reading.counts;
}

Digest BlockReader::digest(const Block& block, const Turn& turn) const {
  const SourceFile& source = sources_.files[block.file];
  Digest digest;
  if (source.rows != nullptr) return load_rows(source, block, turn).stored.digest;
  if (source.shape != TextShape::kText || source.tokens) {
    const std::shared_ptr<SourceBytes> file = open(block.file);
    if (source.shape == TextShape::kJsonLines) {
      digest = digest_of(load_lines(*file, source.shown, block, turn).bytes);
    } else {
      if (block.end - block.begin > kLongBytes) turn();
      std::string bytes;
      read_piece(*file, block.begin, block.end - block.begin, bytes);
      digest = digest_of(bytes);
    }
    done(block, *file);
    return digest;
  }
  const Check check = [&](const Digest& d) { digest = d; };
  const Visit visit = [](const DocumentPiece&) {};
  Reading reading{.check = check, .visit = visit, .turn = turn};
  read_text(block, reading);
  return digest;
}

struct BlockReader::Text {
  std::string bytes;                     ///< bytes of the file, from the beginning of the block on
  TextSplitter::SplitPoint start, stop;  ///< where the block's text starts and stops, in `bytes`
  bool ends = false;                     ///< true if the file ends with this block's text

  std::string_view own() const { return std::string_view(bytes).substr(start.at, stop.at - start.at); }
  std::string_view text() const {
    const size_t from = std::min(start.resume, stop.at);
    return std::string_view(bytes).substr(from, stop.at - from);
  }
};

BlockReader::Text BlockReader::load_text(const Block& block, SourceBytes& file, const Turn& turn) const {
  const SourceFile& source = sources_.files[block.file];
  const auto nominal = static_cast<size_t>(block.end - block.begin);
  const auto rest = static_cast<size_t>(source.bytes - block.begin);  // bytes to the end of the file
  const bool last = nominal == rest;
  const size_t context = rules_.between_words ? 0 : splitter_.context();
  const int64_t margin = rules_.between_words ? kWordContext : context > 0 ? kSearchBytes : 4;
  Text text;
  read_piece(file, block.begin, block.end - block.begin + margin, text.bytes);
  const auto check_size = [&] {
    if (text.bytes.size() > rest || text.bytes.size() < nominal || (last && text.bytes.size() != rest))
      throw changed(source);
  };
  check_size();
  std::string more;
  // Returns the first split point at or after `from`, or the end of the file if there is none.
  const auto split = [&](size_t from) -> TextSplitter::SplitPoint {
    if (rules_.between_words) {
      const size_t word = between_words(std::string_view(text.bytes).substr(from, kWordContext));
      const size_t at =
          from + (word > 0 ? word : first_split_point(rules_.split_points, std::string_view(text.bytes).substr(from)));
      return {at, at};
    }
    for (size_t at = from + context;;) {
      const bool whole = text.bytes.size() == rest;
      if (const auto found = splitter_.find(text.bytes, at, whole, {from, block.begin})) return *found;
      if (whole) return {rest, rest};
      const auto searched = static_cast<int64_t>(text.bytes.size() - from);
      if (searched >= kMaxUnsplitBytes) {
        throw place_error(source, block.begin + static_cast<int64_t>(from), unsplit_reason(searched));
      }
      if (searched > kLongBytes / 2) turn();
      read_piece(file, block.begin + static_cast<int64_t>(text.bytes.size()), std::max(kSearchBytes, searched), more);
      if (more.empty()) throw changed(source);
      text.bytes += more;
      check_size();
    }
  };
  if (block.begin > 0) text.start = split(0);
  text.stop = last ? TextSplitter::SplitPoint{rest, rest} : split(nominal);
  text.stop.at = std::max(text.start.at, text.stop.at);
  text.ends = text.stop.at == rest && (text.start.at < rest || block.begin == 0);
  return text;
}

void BlockReader::read_text(const Block& block, Reading& reading) const {
  const SourceFile& source = sources_.files[block.file];
  const std::shared_ptr<SourceBytes> file = open(block.file);
  if (rules_.split_points == SplitPoints::kNowhere) return read_whole(block, *file, reading);
  const Text text = load_text(block, *file, reading.turn);
  done(block, *file);
  reading.check(digest_of(text.own()));
  try {
    visit_documents(text, block.begin == 0, reading);
  } catch (const TextError& e) {
    throw place_error(source, block.begin + static_cast<int64_t>(text.start.resume + e.offset), e.reason);
  }
}

/// Visits the documents in the text of a block: one document, or several if there is a separator. The offset of a
/// thrown TextError counts from the start of all.text().
void BlockReader::visit_documents(const Text& all, bool begins, Reading& reading) const {
  const std::string_view text = all.text();
  bool inside = !begins || !rules_.separator;  // a document has begun before `at`, or the file is one document
  bool line_begins = begins;
  for (size_t at = 0;;) {
    const auto separator = rules_.separator.find(text, at, line_begins);
    const std::string_view part = text.substr(at, (separator ? separator->begin : text.size()) - at);
    const bool ends = separator || all.ends;
    try {
      if (inside || !blank_text(part)) {
        visit_long({.text = part, .begins = begins || !inside, .ends = ends}, reading);
      } else if (!part.empty() || (separator && rules_.separator.counts_empty())) {
        ++reading.counts.empty_documents;
      }
    } catch (TextError& e) {
      e.offset += at;
      throw;
    }
    if (!separator) break;
    at = separator->end;
    inside = begins = false;
    line_begins = true;
  }
}

/// Visits a long document in pieces, so that the memory for encoding does not grow with the length of the document.
void BlockReader::visit_long(const DocumentPiece& piece, Reading& reading) const {
  if (piece.text.empty() && !piece.ends && !piece.begins) return;
  DocumentPiece part = piece;
  size_t at = 0;
  const auto visit = [&](size_t end) {
    part.text = piece.text.substr(at, end - at);
    if (static_cast<int64_t>(part.text.size()) > kLongBytes) reading.turn();
    try {
      visit_mended(part, reading);
    } catch (TextError& e) {
      e.offset += at;
      throw;
    }
  };
  while (rules_.split_points != SplitPoints::kNowhere && piece.text.size() - at > 2 * kLongText) {
    std::optional<TextSplitter::SplitPoint> split;
    if (rules_.between_words) {
      const size_t from = at + kLongText, word = between_words(piece.text.substr(from, kWordContext));
      const size_t end = from + (word > 0 ? word : first_split_point(rules_.split_points, piece.text.substr(from)));
      split = {end, end};
    } else {
      size_t from = at + kLongText;
      const std::string_view near = piece.text.substr(0, from + static_cast<size_t>(kMaxUnsplitBytes));
      split = splitter_.find(near, from, near.size() == piece.text.size(), {from, 0});
    }
    if (!split || split->resume >= piece.text.size()) break;
    part.ends = false;
    visit(split->at);
    part.begins = false;
    at = split->resume;
  }
  part.ends = piece.ends;
  if (rules_.split_points == SplitPoints::kWords && static_cast<int64_t>(piece.text.size() - at) > kMaxUnsplitBytes)
    throw TextError{at, unsplit_reason(static_cast<int64_t>(piece.text.size() - at))};
  visit(piece.text.size());
}

void BlockReader::visit_mended(const DocumentPiece& piece, Reading& reading) const {
  if (rules_.bad_lines == BadLines::kStop) return reading.visit(piece);
  try {
    reading.visit(piece);
  } catch (const TextError&) {
    int64_t places = 0;
    const std::string text = repaired(piece.text, rules_.bad_lines == BadLines::kReplace, places);
    if (places == 0) throw;
    DocumentPiece mended = piece;
    mended.text = text;
    reading.visit(mended);
    reading.counts.bad_places += places;
  }
}

void BlockReader::read_whole(const Block& block, SourceBytes& file, Reading& reading) const {
  const SourceFile& source = sources_.files[block.file];
  if (source.bytes > kMaxDocumentBytes) {
    throw input_error("input", source.shown, " is one document of ", source.bytes, " bytes, but this tokenizer",
                      " cannot split a document: expected at most ", kMaxDocumentBytes,
                      " bytes; split the file, or make it JSONL");
  }
  std::string bytes;
  if (block.begin == 0 && source.bytes > kLongBytes) reading.turn();
  if (block.begin == 0) read_piece(file, 0, source.bytes + 1, bytes);
  done(block, file);
  if (block.begin == 0 && static_cast<int64_t>(bytes.size()) != source.bytes) throw changed(source);
  reading.check(digest_of(bytes));
  if (block.begin > 0) return;
  Text text{.bytes = std::move(bytes), .start = {}, .stop = {}, .ends = true};
  text.stop.at = text.bytes.size();
  try {
    visit_documents(text, true, reading);
  } catch (const TextError& e) {
    throw place_error(source, static_cast<int64_t>(e.offset), e.reason);
  }
}

void BlockReader::read_object(const SourceFile& source, int64_t offset, std::span<char> object,
                              Reading& reading) const {
  std::string room;
  JsonField field;
  try {
    field = read_json_field(object, rules_.text_field, room, rules_.bad_lines == BadLines::kReplace);
    reading.counts.bad_places += field.replaced;
  } catch (const TextError& e) {
    if (rules_.bad_lines == BadLines::kStop)
      throw place_error(source, offset + static_cast<int64_t>(e.offset), e.reason);
    ++reading.counts.bad_lines;
    return;
  }
  if (field.text.empty()) {
    ++reading.counts.empty_documents;
    return;
  }
  try {
    visit_long({.text = field.text, .begins = true, .ends = true}, reading);
  } catch (const TextError& e) {
    // The offset of the error counts bytes of the unescaped text, so it is not an offset in the file. The message gives
    // the place of the JSON object in the file, and this offset in the text.
    throw place_error(source, offset,
                      str_cat("field \"", rules_.text_field, "\", byte ", e.offset, " of the text: ", e.reason), false);
  }
}

void BlockReader::read_lines(const Block& block, Reading& reading) const {
  const SourceFile& source = sources_.files[block.file];
  const std::shared_ptr<SourceBytes> file = open(block.file);
  Loaded loaded = load_lines(*file, source.shown, block, reading.turn);
  done(block, *file);
  const std::string_view all = loaded.bytes;
  reading.check(digest_of(all));
  for (size_t at = 0; at < all.size();) {
    const size_t stop = std::min(all.find('\n', at), all.size());
    const int64_t offset = loaded.begin + static_cast<int64_t>(at);
    std::string_view line = all.substr(at, stop - at);
    at = stop + 1;
    if (offset == 0) line = without_bom(line);
    const auto begin = static_cast<size_t>(line.data() - all.data());
    if (!blank(line)) read_object(source, offset, std::span(loaded.bytes).subspan(begin, line.size()), reading);
  }
}

void BlockReader::read_array(const Block& block, Reading& reading) const {
  const SourceFile& source = sources_.files[block.file];
  if (block.end - block.begin > kMaxLineBytes)
    throw input_error("input", source.shown, ": an element of its JSON array is longer than ", kMaxLineBytes,
                      " bytes; split that element");
  if (block.end - block.begin > kLongBytes) reading.turn();
  const std::shared_ptr<SourceBytes> file = open(block.file);
  std::string bytes;
  read_piece(*file, block.begin, block.end - block.begin, bytes);
  done(block, *file);
  if (static_cast<int64_t>(bytes.size()) != block.end - block.begin) throw changed(source);
  reading.check(digest_of(bytes));
  const std::string_view all = bytes;
  size_t at = 0;
  const auto fail = [&](const char* reason) {
    return place_error(source, block.begin + static_cast<int64_t>(at),
                       str_cat("broken JSON array: ", reason, "; correct the file"), false);
  };
  const auto space = [&] { at = std::min(all.find_first_not_of(" \t\r\n", at), all.size()); };
  if (block.begin == 0) {
    at = all.size() - without_bom(all).size();
    space();
    if (at == all.size() || all[at] != '[') throw fail("expected \"[\"");
    ++at;
  }
  bool element_before = false, closed = false;
  for (space(); at < all.size() && !closed; space()) {
    if (all[at] == ']' || all[at] == ',') {
      if (!element_before) throw fail("expected an element, got \",\" or \"]\"");
      closed = all[at++] == ']';
      element_before = false;
      continue;
    }
    if (element_before) throw fail("expected \",\" or \"]\" after an element");
    const size_t end = json_element_end(all, at);
    if (end == std::string_view::npos) throw fail("the file ends inside an element");
    read_object(source, block.begin + static_cast<int64_t>(at), std::span(bytes).subspan(at, end - at), reading);
    at = end;
    element_before = true;
  }
  if (at < all.size()) throw fail("expected the end of the file after \"]\", got more text");
  if (closed != (block.end == source.bytes))
    throw fail(closed ? "expected the end of the file after \"]\", got more text" : "expected \"]\" at the end");
}

void BlockReader::read_rows(const Block& block, Reading& reading) const {
  const SourceFile& source = sources_.files[block.file];
  const LoadedRows rows = load_rows(source, block, reading.turn);
  reading.check(rows.stored.digest);
  source.rows->each_row(*rows.run, rows.stored, [&](int64_t row, std::optional<std::string_view> text) {
    read_row(source, row, text, reading);
  });
}

void BlockReader::read_row(const SourceFile& source, int64_t row, std::optional<std::string_view> text,
                           Reading& reading) const {
  const bool stop = rules_.bad_lines == BadLines::kStop;
  const auto fail = [&](const auto&... reason) {
    return input_error("input", source.shown, ", row ", row, " (from 0), column ", rules_.text_field, ": ", reason...);
  };
  constexpr std::string_view kHint = " (--bad-lines skip leaves out such documents)";
  if (!text) {
    if (stop) throw fail("expected text, got a null", kHint);
    ++reading.counts.bad_lines;
    return;
  }
  std::string mended;
  if (const size_t at = first_invalid(*text); at < text->size()) {
    if (stop) throw fail("byte ", at, " of the text: invalid UTF-8", kHint);
    if (rules_.bad_lines == BadLines::kSkip) {
      ++reading.counts.bad_lines;
      return;
    }
    int64_t places = 0;
    mended = repaired(*text, true, places);
    reading.counts.bad_places += places;
    text = mended;
  }
  if (text->empty()) {
    ++reading.counts.empty_documents;
    return;
  }
  try {
    visit_long({.text = *text, .begins = true, .ends = true}, reading);
  } catch (const TextError& e) {
    throw fail("byte ", e.offset, " of the text: ", e.reason);
  }
}

/// Visits the documents of a token file. If the file has an index, the index gives the ends of the documents.
/// Otherwise a document ends at each end-of-document id and at the end of the file.
void BlockReader::read_tokens(const Block& block, Reading& reading) const {
  const SourceFile& source = sources_.files[block.file];
  const TokenLayout& layout = *source.tokens;
  const int64_t size = bytes_of(layout.type);
  // The id before the block shows whether a document begins with the first id of the block.
  const int64_t look = block.begin > 0 && layout.index.empty() ? size : 0;
  const std::shared_ptr<SourceBytes> file = open(block.file);
  std::string bytes;
  read_piece(*file, block.begin - look, block.end - block.begin + look, bytes);
  done(block, *file);
  if (static_cast<int64_t>(bytes.size()) != block.end - block.begin + look) throw changed(source);
  const std::string_view own = std::string_view(bytes).substr(static_cast<size_t>(look));
  reading.check(digest_of(own));
  const int64_t first = block.begin / size, last = block.end / size;
  std::vector<int32_t> ids;
  if (const auto outside = append_ids(own, layout.type, rules_.vocab_size, ids)) {
    const int64_t token = first + outside->index;
    throw input_error("input", source.shown, ": token ", token, " (byte ", layout.offset + token * size, ") is id ",
                      outside->id, ", outside the vocabulary of ", rules_.vocab_size,
                      "; give the tokenizer that made the ids (the file is read as ", layout.form, ", ",
                      name_of(layout.type), ") with --tokenizer");
  }
  bool begins = block.begin == 0;
  std::vector<int64_t> ends;  // ends of documents, relative to the block's first id
  if (layout.index.empty()) {
    std::vector<int32_t> before;
    append_ids(std::string_view(bytes).substr(0, static_cast<size_t>(look)), layout.type, rules_.vocab_size, before);
    begins = begins || (!before.empty() && before[0] == rules_.eod_id);
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == rules_.eod_id) ends.push_back(static_cast<int64_t>(i) + 1);
    if (block.end == source.bytes && (ends.empty() || ends.back() < last - first)) ends.push_back(last - first);
  } else {
    const std::shared_ptr<const DocumentIndex> index = index_of(block.file);
    begins = begins || !index->starts(first - 1, first).empty();
    for (const int64_t start : index->starts(first, last)) ends.push_back(start - first);
  }
  int64_t at = 0;
  const auto piece = [&](int64_t end, bool whole) {
    reading.visit({.ids = std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(end - at)),
                   .has_ids = true,
                   .begins = begins,
                   .ends = whole});
    at = end;
    begins = whole;
  };
  for (const int64_t end : ends) piece(end, true);
  if (at < last - first) piece(last - first, false);
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

std::shared_ptr<const DocumentIndex> BlockReader::index_of(int64_t file) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const DocumentIndex>& index = indexes_[file];
  const TokenLayout& layout = *sources_.files[file].tokens;
  if (index == nullptr && layout.form == kDatatroveForm) index = std::make_shared<DatatroveIndex>(layout.index);
  if (index == nullptr) index = std::make_shared<MegatronIndex>(layout.index);
  return index;
}

Error BlockReader::place_error(const SourceFile& source, int64_t offset, const std::string& reason,
                               bool avoidable) const {
  int64_t line = 1;
  SourceBytes file(source);
  std::string bytes;
  for (int64_t at = 0; at < offset; at += kReadAhead) {
    read_piece(file, at, std::min(kReadAhead, offset - at), bytes);
    file.release(at, std::min(offset, at + kReadAhead));
    line += std::count(bytes.begin(), bytes.end(), '\n');
  }
  const bool utf8 = reason.find("UTF-8") != std::string::npos;
  const char* hint = !avoidable || rules_.bad_lines != BadLines::kStop ? ""
                     : source.shape != TextShape::kText                ? " (--bad-lines skip leaves out such documents)"
                     : utf8 ? " (--bad-lines replace writes U+FFFD instead; --tokenizer bytes accepts any file)"
                            : "";
  return input_error("input", source.shown, ", line ", line, ", byte offset ", offset, ": ", reason, hint);
}

}  // namespace ashlar::data
