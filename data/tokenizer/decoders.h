#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/regex.h"

namespace ashlar::data {

/// One step of `decoder` of tokenizer.json: changes the spellings of tokens, which are concatenated at the end.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens, Regex::Scratch& scratch) const = 0;
};

/// Sequence, ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace. Another type or an unknown field is an input
/// error with its name.
std::unique_ptr<Decoder> read_decoder(Fields fields);

/// Bytes as UTF-8, with U+FFFD for each invalid piece: the longest prefix of a character is one piece.
/// Source: The Unicode Standard 3.9, U+FFFD substitution of maximal subparts.
std::string as_utf8(std::string_view bytes);

}  // namespace ashlar::data
