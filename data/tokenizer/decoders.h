#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/regex.h"

namespace ashlar::data {

/// One step of `decoder` of tokenizer.json. It changes the spellings of tokens. The spellings after the last step are
/// concatenated.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens, Regex::Scratch& scratch) const = 0;
  /// True if spellings are read as ByteCharacters.
  virtual bool reads_byte_characters() const { return false; }
};

/// Reads a decoder: Sequence, ByteLevel, ByteFallback, Fuse, Strip, Replace or Metaspace. Throws an input error that
/// names any other type or an unknown field.
std::unique_ptr<Decoder> read_decoder(Fields fields);

}  // namespace ashlar::data
