#include "data/build/document_encoder.h"

#include <algorithm>

#include "core/base/printable.h"

namespace ashlar::data {

int64_t DocumentEncoder::encode(const DocumentPiece& piece, std::vector<int32_t>& ids) const {
  if (piece.has_ids) {
    ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
    return 0;
  }
  const auto first = static_cast<int64_t>(ids.size());
  int64_t spellings = 0;
  if (!special_) {
    tokenizer_.encode(piece.text, ids);
  } else if (policy_ == SpecialPolicy::kParse) {
    tokenizer_.encode(piece.text, ids);
    spellings = std::count(ids.begin() + first, ids.end(), eod_);
    // A text that ends with the spelling of the end-of-document token already has its end-of-document id.
    if (piece.ends && static_cast<int64_t>(ids.size()) > first && ids.back() == eod_) return spellings;
  } else {
    std::vector<SpecialSpelling> found;
    tokenizer_.encode_as_text(piece.text, ids, found);
    spellings = static_cast<int64_t>(found.size());
    if (spellings > 0 && policy_ == SpecialPolicy::kRefuse) {
      throw TextError{found[0].offset,
                      str_cat("the text has the spelling of a special token (id ", found[0].id,
                              "): ", printable(piece.text.substr(found[0].offset, 32)),
                              ", which --special-tokens refuse does not allow; set it to text or parse")};
    }
    if (std::find(ids.begin() + first, ids.end(), eod_) != ids.end())
      throw TextError{
          0, str_cat("the text contains the end-of-document token (id ", eod_, "), which is an ordinary token of ",
                     "this tokenizer; --special-tokens parse ends documents at that token")};
  }
  if (piece.ends) ids.push_back(eod_);
  return spellings;
}

}  // namespace ashlar::data
