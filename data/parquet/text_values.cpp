#include "data/parquet/text_values.h"

#include <bit>
#include <cstring>

#include "core/io/checksum.h"
#include "data/parquet/fault.h"
#include "data/parquet/number_runs.h"

namespace ashlar::data {
namespace {

constexpr int64_t kPlain = 0, kPlainDictionary = 2, kRle = 3, kDeltaLength = 6, kDeltaText = 7, kRleDictionary = 8;

std::string_view name_of_encoding(int64_t encoding) {
  constexpr std::string_view kNames[] = {
      "PLAIN",          "GROUP_VAR_INT",       "PLAIN_DICTIONARY",        "RLE",
      "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
      "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};
  return encoding >= 0 && encoding < 10 ? kNames[encoding] : "unknown";
}

ParquetFault unknown_encoding(std::string_view of, int64_t encoding) {
  return {str_cat("has ", of, " in encoding ", encoding, " (", name_of_encoding(encoding),
                  "), expected PLAIN, a dictionary, DELTA_LENGTH_BYTE_ARRAY or DELTA_BYTE_ARRAY; write it again, for ",
                  "example with pyarrow: pq.write_table(pq.read_table(OLD), NEW, compression='zstd')")};
}

/// Takes `n` bytes from the beginning of `rest`.
std::string_view take_bytes(std::string_view& rest, int64_t n) {
  if (n < 0 || static_cast<uint64_t>(n) > rest.size())
    throw damaged_parquet("a page ends inside a text of ", n, " bytes");
  const std::string_view taken = rest.substr(0, static_cast<size_t>(n));
  rest.remove_prefix(taken.size());
  return taken;
}

/// Takes a text with its length before it.
std::string_view take_plain(std::string_view& rest) {
  int32_t length = 0;
  std::memcpy(&length, take_bytes(rest, 4).data(), 4);
  return take_bytes(rest, length);
}

/// Reads the texts of one page that are not null.
class ValueReader {
 public:
  ValueReader(int64_t encoding, std::string_view bytes, std::span<const std::string_view> dictionary)
      : encoding_(encoding), rest_(bytes), dictionary_(dictionary) {}

  std::string_view next() {
    if (!open_) open();
    switch (encoding_) {
      case kPlain: return take_plain(rest_);
      case kDeltaLength: return take_bytes(rest_, lengths_.next());
      case kDeltaText: return next_of_prefix();
      default: break;
    }
    const uint32_t index = indices_.next();
    if (index >= dictionary_.size())
      throw damaged_parquet("a page has index ", index, " into a dictionary of ", dictionary_.size(), " texts");
    return dictionary_[index];
  }

  /// Throws ParquetFault if there are more texts than were read.
  void finish() const {
    if (!open_ || encoding_ == kPlainDictionary || encoding_ == kRleDictionary) return;
    if (!rest_.empty() || lengths_.left() > 0 || prefixes_.left() > 0)
      throw damaged_parquet("a page has more bytes than its values");
  }

 private:
  void open() {
    open_ = true;
    if (encoding_ == kPlainDictionary || encoding_ == kRleDictionary) {
      const int width = static_cast<uint8_t>(take_bytes(rest_, 1)[0]);
      indices_ = HybridReader(rest_, width);
    }
    if (encoding_ == kDeltaText) {
      prefixes_ = DeltaReader(rest_);
      rest_.remove_prefix(prefixes_.end());
    }
    if (encoding_ == kDeltaText || encoding_ == kDeltaLength) {
      lengths_ = DeltaReader(rest_);
      rest_.remove_prefix(lengths_.end());
    }
  }

  /// The next text of DELTA_BYTE_ARRAY: a prefix of the last text, and a suffix.
  std::string_view next_of_prefix() {
    const int32_t prefix = prefixes_.next();
    if (prefix < 0 || static_cast<size_t>(prefix) > last_.size())
      throw damaged_parquet("a page has a prefix of ", prefix, " bytes of a text of ", last_.size(), " bytes");
    last_.resize(static_cast<size_t>(prefix));
    last_ += take_bytes(rest_, lengths_.next());
    return last_;
  }

  int64_t encoding_;
  std::string_view rest_;
  std::span<const std::string_view> dictionary_;
  bool open_ = false;
  HybridReader indices_;
  DeltaReader prefixes_, lengths_;
  std::string last_;
};

}  // namespace

UnpackedPage::UnpackedPage(const PageHeader& header, ParquetCodec codec, std::string_view stored) : header_(header) {
  if (header.crc && io::crc32(stored) != *header.crc) throw damaged_parquet("a page does not match its checksum");
  const bool v2 = header.type == PageType::kDataV2;
  const auto levels = static_cast<size_t>(v2 ? header.repetition_bytes + header.definition_bytes : 0);
  if (v2)
    levels_ = stored.substr(static_cast<size_t>(header.repetition_bytes),
                            levels - static_cast<size_t>(header.repetition_bytes));
  const std::string_view packed = stored.substr(levels);
  const auto bytes = static_cast<size_t>(header.bytes) - levels;
  if (v2 && !header.packed) codec = ParquetCodec::kUncompressed;
  if (bytes == 0) return;  // no value: some writers compress nothing, others store nothing
  check_unpacked_size(codec, packed, static_cast<int64_t>(bytes));
  if (codec == ParquetCodec::kUncompressed) {
    body_ = packed;
    return;
  }
  memory_ = std::make_unique_for_overwrite<char[]>(bytes);
  unpack_page(codec, packed, std::span(memory_.get(), bytes));
  body_ = std::string_view(memory_.get(), bytes);
}

bool uses_dictionary(const PageHeader& header) {
  return header.holds_rows() && (header.encoding == kPlainDictionary || header.encoding == kRleDictionary);
}

std::vector<std::string_view> dictionary_of(const UnpackedPage& page) {
  const PageHeader& header = page.header();
  if (header.encoding != kPlain && header.encoding != kPlainDictionary)
    throw unknown_encoding("a dictionary", header.encoding);
  std::string_view rest = page.body();
  if (header.values > static_cast<int64_t>(rest.size() / 4))
    throw damaged_parquet("a dictionary of ", header.values, " texts has ", rest.size(), " bytes");
  std::vector<std::string_view> texts;
  texts.reserve(static_cast<size_t>(header.values));
  for (int64_t i = 0; i < header.values; ++i) texts.push_back(take_plain(rest));
  return texts;
}

void each_text(const UnpackedPage& page, int max_definition, std::span<const std::string_view> dictionary,
               const VisitText& visit) {
  const PageHeader& header = page.header();
  const int64_t encoding = header.encoding;
  if (encoding != kPlain && encoding != kDeltaLength && encoding != kDeltaText && !uses_dictionary(header))
    throw unknown_encoding("texts", encoding);
  if (header.repetition_bytes > 0) throw damaged_parquet("a page without lists has levels of repetition");
  std::string_view levels = page.levels(), values = page.body();
  if (header.type == PageType::kData && max_definition > 0) {
    if (header.level_encoding != kRle) throw unknown_encoding("definition levels", header.level_encoding);
    levels = take_plain(values);
  }
  const auto width = static_cast<int>(std::bit_width(static_cast<unsigned>(max_definition)));
  HybridReader definitions(levels, width);
  ValueReader reader(encoding, values, dictionary);
  for (int64_t i = 0; i < header.values; ++i) {
    const uint32_t level = definitions.next();
    if (level > static_cast<uint32_t>(max_definition)) throw damaged_parquet("a page has definition level ", level);
    if (level == static_cast<uint32_t>(max_definition)) {
      visit(reader.next());
    } else {
      visit(std::nullopt);
    }
  }
  reader.finish();
}

}  // namespace ashlar::data
