#pragma once

#include <cstdint>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// The number of bytes of text that each token stands for: the bytes that `decode` writes for it. A token that is a
/// part of a character counts its own bytes. The end-of-document token and special tokens stand for no text. The bytes
/// of the tokens of a document add up to the bytes of its text, unless the tokenizer changes texts (normal forms,
/// unknown characters): then they add up to the bytes of the changed text.
///   The first token of a document may stand for fewer bytes than elsewhere, because decoding removes the space that
/// the tokenizer has added before the text.
class TokenBytes {
 public:
  explicit TokenBytes(const Tokenizer& tokenizer);

  /// `begins`: the token is the first of a document.
  int64_t of(int32_t id, bool begins) const { return (begins ? first_ : inside_)[static_cast<size_t>(id)]; }
  int32_t eod_id() const { return eod_id_; }

 private:
  std::vector<int32_t> inside_, first_;  ///< indexed by id
  int32_t eod_id_;
};

}  // namespace ashlar::data
