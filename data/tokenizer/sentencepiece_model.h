#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::data {

/// What a SentencePiece `.model` holds that decides ids.
struct SentencePieceModelFile {
  enum class Type : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };
  std::vector<Piece> pieces;  ///< by id
  bool unigram = true;        ///< otherwise BPE, or a kind that only the library knows
  bool byte_fallback = false;
  bool space_as_suffix = false;
  std::string charsmap;  ///< rules of normalisation, as the library writes them
  bool dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
};

/// Reads the protocol buffer (sentencepiece_model.proto); nothing when it is none.
std::optional<SentencePieceModelFile> parse_sentencepiece_model(std::string_view bytes);

/// Refuses, with an input error, what the library would take and then read beyond its memory or spend hours with: rules
/// of normalisation that point outside themselves, pieces longer than kMaxTokenBytes, several pieces for the unknown.
void check_sentencepiece_model(const SentencePieceModelFile& model, const std::string& shown);

}  // namespace ashlar::data
