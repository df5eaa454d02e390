#include "data/sources/token_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <ranges>

#include "core/base/error.h"

namespace ashlar::data {
namespace {

struct TypeFacts {
  std::string_view name;
  int64_t bytes;
  int64_t largest;
};
constexpr std::array<TypeFacts, 8> kTypes = {{{"uint8", 1, 0xFF},
                                              {"int8", 1, 0x7F},
                                              {"uint16", 2, 0xFFFF},
                                              {"int16", 2, 0x7FFF},
                                              {"uint32", 4, 0xFFFFFFFF},
                                              {"int32", 4, 0x7FFFFFFF},
                                              {"uint64", 8, std::numeric_limits<int64_t>::max()},
                                              {"int64", 8, std::numeric_limits<int64_t>::max()}}};

const TypeFacts& facts(TokenType type) { return kTypes[static_cast<size_t>(type)]; }

template <typename T>
T value_at(std::string_view bytes, size_t offset) {
  T value;
  ASHLAR_CHECK(offset + sizeof(T) <= bytes.size(), "byte ", offset, " of ", bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// ---- NumPy ----

constexpr std::string_view kNumpyMagic = "\x93NUMPY";

/// Returns the text after `'key':` in the header, without leading spaces.
std::string_view numpy_field(std::string_view header, std::string_view key) {
  const size_t at = header.find(str_cat("'", key, "':"));
  if (at == std::string_view::npos) return "";
  std::string_view rest = header.substr(at + key.size() + 3);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

/// Returns the number of items of a shape such as "(3, 4)"; nothing if the shape is invalid or too large.
std::optional<int64_t> numpy_items(std::string_view shape) {
  if (!shape.starts_with('(')) return std::nullopt;
  shape = shape.substr(1, shape.find(')') - 1);
  int64_t items = 1;
  const char* at = shape.data();
  const char* const end = at + shape.size();
  while (at < end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    int64_t size = -1;
    const auto [next, code] = std::from_chars(at, end, size);
    if (code != std::errc() || size < 0 || __builtin_mul_overflow(items, size, &items)) return std::nullopt;
    at = next;
  }
  return items;
}

TokenLayout numpy_tokens(std::string_view head, int64_t bytes, const std::string& shown) {
  const auto refuse = [&](const auto&... what) { return input_error("input", shown, ": NumPy array ", what...); };
  const size_t prefix = kNumpyMagic.size() + 2;
  const int version = head.size() > prefix ? static_cast<uint8_t>(head[kNumpyMagic.size()]) : 0;
  const size_t length_bytes = version == 1 ? 2 : 4;
  if (head.size() < prefix + length_bytes) throw refuse("is truncated in its header; copy or download the file again");
  if (version < 1 || version > 3)
    throw refuse("of format version ", version, ", expected 1 to 3; save it again with numpy.save");
  const size_t length = version == 1 ? value_at<uint16_t>(head, prefix) : value_at<uint32_t>(head, prefix);
  const size_t begin = prefix + length_bytes;
  if (head.size() < begin + length) throw refuse("is truncated in its header; copy or download the file again");
  const std::string_view header = head.substr(begin, length);
  const std::string_view descr = numpy_field(header, "descr");
  const std::string_view name = descr.starts_with('\'') ? descr.substr(1, descr.find('\'', 1) - 1) : descr;
  TokenLayout layout{.form = "NumPy", .offset = static_cast<int64_t>(begin + length)};
  constexpr std::array<std::string_view, 8> kNames = {"|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"};
  const auto* const type = std::find(kNames.begin(), kNames.end(), name);
  if (type == kNames.end()) {
    throw refuse("of type ", name.substr(0, 20), ", expected little-endian whole numbers (<u2, <u4, <i4, <i8, ...);",
                 " save token ids with array.astype('<u2') or '<u4'");
  }
  layout.type = static_cast<TokenType>(type - kNames.begin());
  if (!numpy_field(header, "fortran_order").starts_with("False"))
    throw refuse("is stored by columns; save it with numpy.ascontiguousarray");
  const std::optional<int64_t> items = numpy_items(numpy_field(header, "shape"));
  if (!items)
    throw refuse("has a shape that cannot be read: ", numpy_field(header, "shape").substr(0, 30),
                 "; save it again with numpy.save");
  layout.tokens = *items;
  const int64_t there = bytes - layout.offset;
  if (there / bytes_of(layout.type) < layout.tokens) {
    throw refuse("is truncated: its header says ", layout.tokens, " ids, the file has ", there / bytes_of(layout.type),
                 "; copy or download the file again");
  }
  if (there != layout.tokens * bytes_of(layout.type))
    throw refuse("is followed by ", there - layout.tokens * bytes_of(layout.type),
                 " more bytes; copy or download the file again");
  return layout;
}

// ---- llm.c ----

constexpr int64_t kLlmcHeader = 1024;
constexpr int32_t kLlmcGpt2 = 20240520, kLlmcLlama3 = 20240801;

TokenLayout llmc_tokens(std::string_view head, int64_t bytes, const std::string& shown) {
  const auto refuse = [&](const auto&... what) { return input_error("input", shown, ": llm.c shard ", what...); };
  if (bytes < kLlmcHeader) throw refuse("is truncated in its header; copy or download the file again");
  const bool gpt2 = value_at<int32_t>(head, 0) == kLlmcGpt2;
  const auto version = value_at<int32_t>(head, 4);
  const int32_t expected = gpt2 ? 1 : 7;
  if (version != expected)
    throw refuse("of version ", version, ", expected ", expected, "; write it again with llm.c's script");
  TokenLayout layout{.form = "llm.c", .type = gpt2 ? TokenType::kUint16 : TokenType::kUint32, .offset = kLlmcHeader};
  layout.tokens = value_at<int32_t>(head, 8);
  const int64_t size = bytes_of(layout.type), there = bytes - kLlmcHeader;
  if (layout.tokens < 0 || there != layout.tokens * size) {
    throw refuse(
        there < layout.tokens * size ? "is truncated: its header says " : "does not match its header, which says ",
        layout.tokens, " ids, the file has ", there / size, "; copy or download the file again");
  }
  return layout;
}

// ---- Megatron ----

constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);
constexpr int64_t kMegatronHeader = 9 + 8 + 1 + 8 + 8;

}  // namespace

int64_t bytes_of(TokenType type) { return facts(type).bytes; }
int64_t largest_of(TokenType type) { return facts(type).largest; }
std::string_view name_of(TokenType type) { return facts(type).name; }

std::optional<TokenLayout> recognised_tokens(std::string_view head, int64_t bytes, const std::string& shown) {
  if (head.starts_with(kNumpyMagic)) return numpy_tokens(head, bytes, shown);
  if (head.size() < 4) return std::nullopt;
  const auto magic = value_at<int32_t>(head, 0);
  if (magic == kLlmcGpt2 || magic == kLlmcLlama3) return llmc_tokens(head, bytes, shown);
  return std::nullopt;
}

TokenLayout raw_tokens(TokenType type, int64_t bytes, std::string_view form, const std::string& shown) {
  if (bytes % bytes_of(type) != 0) {
    throw input_error(
        "input", shown, ": expected ", form, " ids of ", name_of(type), ", but its ", bytes,
        " bytes are not a multiple of ", bytes_of(type),
        ": the file is truncated or has another format; copy or download the file again, or set --format");
  }
  return {.form = form, .type = type, .offset = 0, .tokens = bytes / bytes_of(type)};
}

TokenLayout megatron_tokens(const std::string& index, int64_t bytes, const std::string& shown) {
  const MegatronIndex reader(index);
  const int64_t size = bytes_of(reader.type());
  if (bytes != reader.tokens() * size) {
    throw input_error("input", shown,
                      bytes < reader.tokens() * size ? " is truncated: " : " does not match its index: ", index,
                      " says ", reader.tokens(), " ids of ", name_of(reader.type()), ", the file has ", bytes,
                      " bytes; copy or download both files again");
  }
  return {.form = "Megatron", .type = reader.type(), .offset = 0, .tokens = reader.tokens(), .index = index};
}

bool is_megatron_index(std::string_view head) { return head.starts_with(kMegatronMagic); }

MegatronIndex::MegatronIndex(const std::string& path) : file_(path) {
  const auto refuse = [&](const auto&... what) { return input_error("input", path, ": Megatron index ", what...); };
  std::string head(kMegatronHeader, '\0');
  if (file_.read_at_most(0, std::as_writable_bytes(std::span(head))) < kMegatronHeader)
    throw refuse("is truncated in its header; copy or download the file again");
  const auto version = value_at<int64_t>(head, 9);
  const auto code = static_cast<uint8_t>(head[17]);
  if (version != 1) throw refuse("of version ", version, ", expected 1; tokenize the data again with Megatron-LM");
  switch (code) {
    case 1: type_ = TokenType::kUint8; break;
    case 2: type_ = TokenType::kInt8; break;
    case 3: type_ = TokenType::kInt16; break;
    case 4: type_ = TokenType::kInt32; break;
    case 5: type_ = TokenType::kInt64; break;
    case 8: type_ = TokenType::kUint16; break;
    default:
      throw refuse("has dtype code ", int{code},
                   ": expected an integer dtype (codes 1 to 5 and 8); tokenize the data again with an integer dtype");
  }
  sequences_ = value_at<int64_t>(head, 18);
  documents_ = value_at<int64_t>(head, 26);
  // An index may have one more byte per sequence, the mode of the sequence, which does not affect ids.
  const int64_t most = file_.size_bytes() / 8;
  const bool sane = sequences_ >= 0 && documents_ >= 1 && sequences_ <= most && documents_ <= most;
  const int64_t plain = sane ? kMegatronHeader + sequences_ * 12 + documents_ * 8 : -1;
  if (!sane || (file_.size_bytes() != plain && file_.size_bytes() != plain + sequences_)) {
    throw refuse("is truncated or damaged: its header says ", sequences_, " sequences and ", documents_,
                 " document ends; its ", file_.size_bytes(),
                 " bytes do not fit these; copy or download the file again");
  }
  // Sequences must be contiguous. Every known writer of the format writes contiguous sequences.
  constexpr int64_t kPiece = 65536;
  std::vector<int32_t> sizes(kPiece);
  std::vector<int64_t> pointers(kPiece);
  for (int64_t at = 0; at < sequences_; at += kPiece) {
    const int64_t n = std::min(kPiece, sequences_ - at);
    file_.read_at(kMegatronHeader + at * 4, std::as_writable_bytes(std::span(sizes).first(static_cast<size_t>(n))));
    file_.read_at(kMegatronHeader + sequences_ * 4 + at * 8,
                  std::as_writable_bytes(std::span(pointers).first(static_cast<size_t>(n))));
    for (int64_t i = 0; i < n; ++i) {
      if (sizes[i] < 0 || pointers[i] != tokens_ * bytes_of(type_))
        throw refuse("has sequence ", at + i,
                     " that does not begin where the one before it ends; write the dataset again");
      tokens_ += sizes[i];
    }
  }
  int64_t before = 0;
  for (int64_t at = 0; at < documents_; at += kPiece) {
    const int64_t n = std::min(kPiece, documents_ - at);
    file_.read_at(kMegatronHeader + sequences_ * 12 + at * 8,
                  std::as_writable_bytes(std::span(pointers).first(static_cast<size_t>(n))));
    for (int64_t i = 0; i < n; ++i) {
      if (pointers[i] < before || pointers[i] > sequences_)
        throw refuse("has document ", at + i, " out of order; copy or download the file again");
      before = pointers[i];
    }
  }
}

int64_t MegatronIndex::number_at(int64_t offset) const {
  int64_t value = 0;
  file_.read_at(offset, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

int64_t MegatronIndex::start_of(int64_t document) const {
  if (document >= documents_) return tokens_;
  const int64_t sequence = number_at(kMegatronHeader + sequences_ * 12 + document * 8);
  if (sequence >= sequences_) return tokens_;
  return number_at(kMegatronHeader + sequences_ * 4 + sequence * 8) / bytes_of(type_);
}

std::vector<int64_t> MegatronIndex::starts(int64_t begin, int64_t end) const {
  const auto starts_before = [&](int64_t d) { return start_of(d) <= begin; };
  std::vector<int64_t> found;
  for (int64_t d = *std::ranges::partition_point(std::views::iota(int64_t{0}, documents_), starts_before);
       d <= documents_; ++d) {
    const int64_t start = start_of(d);
    if (start > end) break;
    if (found.empty() || start > found.back()) found.push_back(start);
  }
  return found;
}

namespace {

template <typename T>
std::optional<OutsideVocabulary> append_as(std::string_view bytes, int64_t vocab_size, std::vector<int32_t>& ids) {
  const size_t n = bytes.size() / sizeof(T);
  const size_t first = ids.size();
  ids.resize(first + n);
  for (size_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    const auto id = static_cast<int64_t>(value);
    if (id < 0 || id >= vocab_size) {
      ids.resize(first + i);
      const bool huge = std::is_unsigned_v<T> && id < 0;
      return OutsideVocabulary{static_cast<int64_t>(i), huge ? std::numeric_limits<int64_t>::max() : id};
    }
    ids[first + i] = static_cast<int32_t>(id);
  }
  return std::nullopt;
}

}  // namespace

std::optional<OutsideVocabulary> append_ids(std::string_view bytes, TokenType type, int64_t vocab_size,
                                            std::vector<int32_t>& ids) {
  switch (type) {
    case TokenType::kUint8: return append_as<uint8_t>(bytes, vocab_size, ids);
    case TokenType::kInt8: return append_as<int8_t>(bytes, vocab_size, ids);
    case TokenType::kUint16: return append_as<uint16_t>(bytes, vocab_size, ids);
    case TokenType::kInt16: return append_as<int16_t>(bytes, vocab_size, ids);
    case TokenType::kUint32: return append_as<uint32_t>(bytes, vocab_size, ids);
    case TokenType::kInt32: return append_as<int32_t>(bytes, vocab_size, ids);
    case TokenType::kUint64: return append_as<uint64_t>(bytes, vocab_size, ids);
    case TokenType::kInt64: break;
  }
  return append_as<int64_t>(bytes, vocab_size, ids);
}

}  // namespace ashlar::data
