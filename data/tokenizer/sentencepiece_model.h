#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::data {

inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  ///< U+2581, which represents a space in pieces

/// True if a piece has kSpaceMark after another character.
bool has_mark_inside(std::string_view piece);

/// The parts of a SentencePiece `.model` that determine ids.
struct SentencePieceModelFile {
  enum class Type : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };
  std::vector<Piece> pieces;  ///< indexed by id
  bool unigram = true;        ///< false: BPE, or a type that only the library supports
  bool byte_fallback = false;
  bool space_as_suffix = false;
  std::string charsmap;  ///< normalization rules in the library's format
  bool dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
};

/// Returns the little-endian number in the four bytes at `at`.
uint32_t number_at(std::string_view bytes, size_t at);

/// Parses the protocol buffer (sentencepiece_model.proto). Returns nothing if the bytes are not such a message.
std::optional<SentencePieceModelFile> parse_sentencepiece_model(std::string_view bytes);

/// Throws an input error for a model on which the library would fail, read out of bounds or run for hours:
/// normalization rules that point outside their table, pieces that are not UTF-8 or are longer than kMaxTokenBytes,
/// scores that are not finite, or a number of unknown pieces other than one.
void check_sentencepiece_model(const SentencePieceModelFile& model, const std::string& shown);

}  // namespace ashlar::data
