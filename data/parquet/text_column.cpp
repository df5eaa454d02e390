#include "data/parquet/text_column.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>

#include "core/base/error.h"
#include "data/parquet/fault.h"
#include "data/parquet/text_values.h"

namespace ashlar::data {
namespace {

constexpr std::string_view kParquetMagic = "PAR1";
constexpr int64_t kTailBytes = 8;  // the size of the footer, and the magic
constexpr int64_t kMaxFooterBytes = int64_t{256} << 20;
constexpr int64_t kHeaderWindow = 8192, kMaxHeaderBytes = int64_t{16} << 20;

static_assert(std::has_unique_object_representations_v<PageRun>);  // its bytes are hashed

std::string read_range(const io::InputFile& file, int64_t offset, int64_t bytes) {
  std::string read(static_cast<size_t>(bytes), '\0');
  read.resize(static_cast<size_t>(file.read_at_most(offset, std::as_writable_bytes(std::span(read)))));
  return read;
}

PageHeader header_in(std::string_view bytes) {
  const auto header = parse_page_header(bytes);
  if (!header || header->stored_bytes() > static_cast<int64_t>(bytes.size()))
    throw damaged_parquet("its pages are not where they were");
  return *header;
}

UnpackedPage unpacked(const PageHeader& header, ParquetCodec codec, std::string_view bytes) {
  return {header, codec,
          bytes.substr(static_cast<size_t>(header.header_bytes), static_cast<size_t>(header.packed_bytes))};
}

}  // namespace

/// Reads page headers, a few KB of the file at a time.
class TextColumn::Headers {
 public:
  Headers(const io::InputFile& file, int64_t end) : file_(file), end_(end) {}

  PageHeader at(int64_t offset) {
    for (int64_t window = kHeaderWindow;; window *= 8) {
      const int64_t have = begin_ + static_cast<int64_t>(bytes_.size()) - offset;
      if (offset >= begin_ && have > 0) {
        const auto header = parse_page_header(std::string_view(bytes_).substr(static_cast<size_t>(offset - begin_)));
        if (header && header->stored_bytes() <= end_ - offset) return *header;
        if (header || begin_ + static_cast<int64_t>(bytes_.size()) >= end_ || have >= kMaxHeaderBytes)
          throw damaged_parquet("the page at byte ", offset, " does not end before the footer");
      }
      if (offset >= end_) throw damaged_parquet("a page is missing at byte ", offset);
      begin_ = offset;
      bytes_ = read_range(file_, offset, std::min(window, end_ - offset));
      if (bytes_.empty()) throw damaged_parquet("it became shorter while it was read");
    }
  }

 private:
  const io::InputFile& file_;
  int64_t end_;
  int64_t begin_ = 0;
  std::string bytes_;
};

bool is_parquet(std::string_view head, const io::InputFile& file) {
  return head.starts_with(kParquetMagic) && file.size_bytes() >= 2 * static_cast<int64_t>(kParquetMagic.size()) &&
         read_range(file, file.size_bytes() - 4, 4) == kParquetMagic;
}

Error TextColumn::refused(const std::string& reason) const {
  return input_error("input", shown_, ": the Parquet file ", reason);
}

TextColumn::TextColumn(std::string path, std::string shown, std::string column, int64_t run_bytes)
    : path_(std::move(path)), shown_(std::move(shown)), column_(std::move(column)), run_bytes_(run_bytes) {
  const io::InputFile file(path_);
  try {
    read_footer(file);
    Headers headers(file, data_end_);
    int64_t row = 0;
    for (size_t c = 0; c < chunks_.size(); ++c) find_pages(headers, c, row);
  } catch (const ParquetFault& fault) {
    throw refused(fault.reason);
  }
}

void TextColumn::read_footer(const io::InputFile& file) {
  const std::string tail = read_range(file, std::max<int64_t>(0, file.size_bytes() - kTailBytes), kTailBytes);
  uint32_t footer_bytes = 0;
  if (tail.size() == static_cast<size_t>(kTailBytes)) std::memcpy(&footer_bytes, tail.data(), sizeof(footer_bytes));
  data_end_ = file.size_bytes() - kTailBytes - footer_bytes;
  if (!tail.ends_with(kParquetMagic) || data_end_ < static_cast<int64_t>(kParquetMagic.size()))
    throw damaged_parquet("its end is not that of a Parquet file");
  if (footer_bytes > kMaxFooterBytes)
    throw ParquetFault{str_cat("has a footer of ", footer_bytes, " bytes, expected at most ", kMaxFooterBytes,
                               "; write it again with larger row groups")};
  const std::string footer = read_range(file, data_end_, footer_bytes);
  const ColumnFooter column = read_column_footer(footer, data_end_, column_);
  max_definition_ = column.max_definition;
  for (const ColumnChunk& chunk : column.chunks) chunks_.push_back({.footer = chunk});
}

void TextColumn::find_pages(Headers& headers, size_t c, int64_t& row) {
  Chunk& chunk = chunks_[c];
  const int64_t end = row + chunk.footer.rows;
  for (int64_t offset = chunk.footer.begin; row < end;) {
    const PageHeader header = headers.at(offset);
    if (header.type == PageType::kDictionary) {
      if (chunk.dictionary_stored > 0) throw damaged_parquet("a row group has two dictionaries of one column");
      chunk.dictionary_offset = offset;
      chunk.dictionary_stored = header.stored_bytes();
      chunk.dictionary_bytes = header.bytes;
    } else if (header.holds_rows()) {
      if (header.values > end - row) throw damaged_parquet("the page at byte ", offset, " has too many values");
      if (uses_dictionary(header) && chunk.dictionary_stored == 0)
        throw damaged_parquet("the page at byte ", offset, " has no dictionary");
      add_page(header, offset, c, row);
      row += header.values;
    }
    offset += header.stored_bytes();
  }
}

void TextColumn::add_page(const PageHeader& header, int64_t offset, size_t chunk, int64_t row) {
  const int64_t bytes = header.header_bytes + header.bytes;
  PageRun* run = runs_.empty() ? nullptr : &runs_.back();
  const bool continues = run != nullptr && run->chunk == static_cast<int64_t>(chunk) &&
                         run->offset + run->stored == offset && run->bytes + bytes <= run_bytes_;
  if (!continues) {
    const int64_t begin = runs_.empty() ? 0 : runs_.back().end;
    const bool first = run == nullptr || run->chunk != static_cast<int64_t>(chunk);
    runs_.push_back({.begin = begin,
                     .end = begin + (first ? chunks_[chunk].dictionary_bytes : 0),
                     .chunk = static_cast<int64_t>(chunk),
                     .offset = offset,
                     .first_row = row});
    run = &runs_.back();
  }
  run->end += bytes;
  run->bytes += bytes;
  run->stored += header.stored_bytes();
  run->rows += header.values;
  if (uses_dictionary(header)) run->from_dictionary = 1;
}

Digest TextColumn::layout() const { return digest_of(std::as_bytes(std::span(runs_))); }

const PageRun* TextColumn::find(int64_t begin, int64_t end) const {
  const auto run =
      std::lower_bound(runs_.begin(), runs_.end(), begin, [](const PageRun& r, int64_t at) { return r.begin < at; });
  return run != runs_.end() && run->begin == begin && run->end == end ? &*run : nullptr;
}

int64_t TextColumn::bytes_in_memory(const PageRun& run) const {
  const Chunk& chunk = chunks_[static_cast<size_t>(run.chunk)];
  const int64_t dictionary = run.from_dictionary != 0 ? chunk.dictionary_stored + chunk.dictionary_bytes : 0;
  return run.stored + run.bytes + dictionary;
}

std::optional<TextColumn::Stored> TextColumn::load(const PageRun& run) const {
  const io::InputFile file(path_);
  Stored stored{.pages = read_range(file, run.offset, run.stored)};
  stored.digest = digest_of(stored.pages);
  if (static_cast<int64_t>(stored.pages.size()) != run.stored) return std::nullopt;
  if (run.from_dictionary == 0) return stored;
  const Chunk& chunk = chunks_[static_cast<size_t>(run.chunk)];
  stored.dictionary = read_range(file, chunk.dictionary_offset, chunk.dictionary_stored);
  stored.digest += digest_of(stored.dictionary, 1);
  if (static_cast<int64_t>(stored.dictionary.size()) != chunk.dictionary_stored) return std::nullopt;
  return stored;
}

void TextColumn::each_row(const PageRun& run, const Stored& stored, const Visit& visit) const {
  const ParquetCodec codec = chunks_[static_cast<size_t>(run.chunk)].footer.codec;
  int64_t row = run.first_row;
  try {
    std::optional<UnpackedPage> dictionary_page;
    std::vector<std::string_view> dictionary;
    if (run.from_dictionary != 0) {
      dictionary_page.emplace(unpacked(header_in(stored.dictionary), codec, stored.dictionary));
      dictionary = dictionary_of(*dictionary_page);
    }
    std::string_view rest = stored.pages;
    while (!rest.empty()) {
      const PageHeader header = header_in(rest);
      if (!header.holds_rows()) throw damaged_parquet("its pages are not where they were");
      const UnpackedPage page = unpacked(header, codec, rest);
      each_text(page, max_definition_, dictionary, [&](std::optional<std::string_view> text) { visit(row++, text); });
      rest.remove_prefix(static_cast<size_t>(header.stored_bytes()));
    }
    if (row != run.first_row + run.rows) throw damaged_parquet("its pages are not where they were");
  } catch (const ParquetFault& fault) {
    throw refused(str_cat(fault.reason, " (column ", column_, ", row ", row, ")"));
  }
}

}  // namespace ashlar::data
