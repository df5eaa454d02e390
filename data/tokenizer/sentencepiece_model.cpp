#include "data/tokenizer/sentencepiece_model.h"

#include <bit>
#include <cmath>

#include "core/base/error.h"
#include "data/tokenizer/pipeline_tokenizer.h"
#include "data/tokenizer/vocabulary.h"

namespace ashlar::data {

bool has_mark_inside(std::string_view piece) {
  while (piece.starts_with(kSpaceMark)) piece.remove_prefix(kSpaceMark.size());
  return piece.find(kSpaceMark) != std::string_view::npos;
}

uint32_t number_at(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t k = 0; k < 4; ++k) value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + k])) << (8 * k);
  return value;
}

namespace {

/// Iterates over the fields of a protobuf message.
/// Source: protobuf.dev, encoding.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  /// Moves to the next field. Returns false at the end of the message, and if the bytes are not a valid message. In the
  /// second case good() returns false.
  bool next() {
    if (bytes_.empty()) return false;
    const uint64_t key = varint();
    field_ = static_cast<int>(key >> 3);
    switch (key & 7U) {
      case 0: number_ = varint(); break;
      case 1: read_bytes(8); break;
      case 2: text_ = read_bytes(varint()); break;
      case 5: fixed(read_bytes(4)); break;
      default: good_ = false;
    }
    return good_;
  }
  bool good() const { return good_; }
  int field() const { return field_; }
  uint64_t number() const { return number_; }
  std::string_view text() const { return text_; }
  float real() const { return real_; }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::string_view byte = read_bytes(1);
      if (byte.empty()) return 0;
      value |= static_cast<uint64_t>(static_cast<uint8_t>(byte[0]) & 0x7FU) << shift;
      if ((static_cast<uint8_t>(byte[0]) & 0x80U) == 0) return value;
    }
    good_ = false;
    return 0;
  }
  std::string_view read_bytes(uint64_t n) {
    if (n > bytes_.size()) {
      good_ = false;
      return "";
    }
    const std::string_view taken = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return taken;
  }
  void fixed(std::string_view four) {
    if (good_) real_ = std::bit_cast<float>(number_at(four, 0));
  }

  std::string_view bytes_, text_;
  bool good_ = true;
  int field_ = 0;
  uint64_t number_ = 0;
  float real_ = 0;
};

bool read_piece(std::string_view bytes, SentencePieceModelFile& model) {
  SentencePieceModelFile::Piece& piece = model.pieces.emplace_back();
  WireReader reader(bytes);
  while (reader.next()) {
    if (reader.field() == 1) piece.text = reader.text();
    if (reader.field() == 2) piece.score = reader.real();
    if (reader.field() == 3) piece.type = static_cast<SentencePieceModelFile::Type>(reader.number());
  }
  return reader.good();
}

bool read_trainer(std::string_view bytes, SentencePieceModelFile& model) {
  WireReader reader(bytes);
  while (reader.next()) {
    if (reader.field() == 3) model.unigram = reader.number() == 1;
    if (reader.field() == 24) model.space_as_suffix = reader.number() != 0;
    if (reader.field() == 35) model.byte_fallback = reader.number() != 0;
  }
  return reader.good();
}

bool read_normalizer(std::string_view bytes, SentencePieceModelFile& model) {
  WireReader reader(bytes);
  while (reader.next()) {
    if (reader.field() == 2) model.charsmap = reader.text();
    if (reader.field() == 3) model.dummy_prefix = reader.number() != 0;
    if (reader.field() == 4) model.remove_extra_spaces = reader.number() != 0;
    if (reader.field() == 5) model.escape_spaces = reader.number() != 0;
  }
  return reader.good();
}

}  // namespace

std::optional<SentencePieceModelFile> parse_sentencepiece_model(std::string_view bytes) {
  SentencePieceModelFile model;
  WireReader reader(bytes);
  bool good = true;
  while (good && reader.next()) {
    if (reader.field() == 1) good = read_piece(reader.text(), model);
    if (reader.field() == 2) good = read_trainer(reader.text(), model);
    if (reader.field() == 3) good = read_normalizer(reader.text(), model);
  }
  if (!good || !reader.good() || model.pieces.empty()) return std::nullopt;
  return model;
}

namespace {

/// True if no look-up in the normalization rules reads outside them. The rules are a double-array trie (Darts) and the
/// texts to which it points.
bool rules_are_good(const std::string& charsmap) {
  if (charsmap.empty()) return true;
  if (charsmap.size() <= 4) return false;
  const size_t bytes = number_at(charsmap, 0);
  if (bytes > charsmap.size() - 4 || bytes % 4 != 0 || bytes < 4) return false;
  const size_t units = bytes / 4, texts = charsmap.size() - 4 - bytes;
  if (texts == 0 || charsmap.back() != '\0') return false;
  const auto unit_at = [&](size_t i) { return number_at(charsmap, 4 + 4 * i); };
  const auto offset = [](uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & (1U << 9)) >> 6); };
  std::vector<bool> seen(units);
  std::vector<size_t> open = {0};
  while (!open.empty()) {
    const size_t at = open.back();
    open.pop_back();
    const size_t base = at ^ offset(unit_at(at));
    if ((base | 0xFFU) >= units) return false;
    if (((unit_at(at) >> 8) & 1U) != 0 && (unit_at(base) & 0x7FFFFFFFU) >= texts) return false;
    for (uint32_t c = 1; c < 256; ++c) {
      const size_t next = base ^ c;
      if ((unit_at(next) & 0x800000FFU) != c || seen[next]) continue;
      seen[next] = true;
      open.push_back(next);
    }
  }
  return true;
}

}  // namespace

void check_sentencepiece_model(const SentencePieceModelFile& model, const std::string& shown) {
  int64_t unknown = 0;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    if (piece.text.size() > kMaxTokenBytes)
      throw input_error("tokenizer", shown, ": piece ", i, " has ", piece.text.size(), " bytes, at most ",
                        kMaxTokenBytes, " are allowed; use a model with shorter pieces");
    if (valid_utf8_end(piece.text) != piece.text.size())
      throw input_error("tokenizer", shown, ": piece ", i, " is not UTF-8; download the file again");
    if (!std::isfinite(piece.score))
      throw input_error("tokenizer", shown, ": the score of piece ", i, " is not a number; download the file again");
    unknown += piece.type == SentencePieceModelFile::Type::kUnknown ? 1 : 0;
  }
  if (unknown != 1)
    throw input_error("tokenizer", shown, " has ", unknown,
                      " pieces of type UNKNOWN, expected one; download the file again");
  if (!rules_are_good(model.charsmap))
    throw input_error(
        "tokenizer", shown,
        ": its normalization rules (precompiled_charsmap) point outside their table; download the file again");
}

}  // namespace ashlar::data
