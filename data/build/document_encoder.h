#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/build/block_reader.h"
#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// What happens to the spelling of a special token in a text, such as <|endoftext|>. kText: the spelling is ordinary
/// text. kParse: the spelling becomes the token, and an end-of-document token ends a document. kRefuse: the spelling is
/// an error.
enum class SpecialPolicy : uint8_t { kText, kParse, kRefuse };
constexpr auto names_of(SpecialPolicy) { return enum_names<SpecialPolicy>("text", "parse", "refuse"); }

/// Encodes pieces of documents. After the last piece of each document it appends the end-of-document id. Pieces of a
/// token file are ids already, and are copied unchanged. Thread-safe.
class DocumentEncoder {
 public:
  DocumentEncoder(const Tokenizer& tokenizer, SpecialPolicy policy)
      : tokenizer_(tokenizer), policy_(policy), special_(tokenizer.has_special_tokens()), eod_(tokenizer.eod_id()) {}

  /// Appends the ids of a piece to `ids` and returns the number of special-token spellings in the piece. Under kParse
  /// only spellings of the end-of-document token are counted. Throws TextError if the text cannot be encoded, and under
  /// kRefuse if the piece has a special-token spelling.
  int64_t encode(const DocumentPiece& piece, std::vector<int32_t>& ids) const;
  /// Calls `visit(ids, ends)` for each document, or part of a document, in the ids that `encode` appended for a piece.
  /// `ends` is true if the document ends with these ids. Under kParse one text may contain several documents.
  template <typename Visit>
  void each_document(const DocumentPiece& piece, std::span<const int32_t> ids, const Visit& visit) const {
    if (policy_ == SpecialPolicy::kParse && special_ && !piece.has_ids) {
      for (size_t i = 0; i + 1 < ids.size();) {
        if (ids[i++] != eod_) continue;
        visit(ids.first(i), true);
        ids = ids.subspan(i);
        i = 0;
      }
      if (ids.empty()) return;
      return visit(ids, ids.back() == eod_);
    }
    visit(ids, piece.ends);
  }

 private:
  const Tokenizer& tokenizer_;
  SpecialPolicy policy_;
  bool special_;
  int32_t eod_;
};

}  // namespace ashlar::data
