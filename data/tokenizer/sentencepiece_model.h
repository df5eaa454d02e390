#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::data {

inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  ///< U+2581, how pieces write a space

/// The parts of a SentencePiece `.model` that determine ids.
struct SentencePieceModelFile {
  enum class Type : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };
  std::vector<Piece> pieces;  ///< indexed by id
  bool unigram = true;        ///< otherwise BPE, or a kind that only the library supports
  bool byte_fallback = false;
  bool space_as_suffix = false;
  std::string charsmap;  ///< normalization rules in the library's format
  bool dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
};

/// Parses the protocol buffer (sentencepiece_model.proto); nothing if it is not one.
std::optional<SentencePieceModelFile> parse_sentencepiece_model(std::string_view bytes);

/// Refuses, with an input error, models on which the library would read out of bounds or run for hours: normalization
/// rules that point outside their table, pieces longer than kMaxTokenBytes, several unknown pieces.
void check_sentencepiece_model(const SentencePieceModelFile& model, const std::string& shown);

}  // namespace ashlar::data
