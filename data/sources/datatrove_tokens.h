#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/sources/token_file.h"

namespace ashlar::data {

inline constexpr std::string_view kDatatroveForm = "datatrove";

/// Returns the layout of X.ds, a file of ids as datatrove writes it for nanotron, with X.ds.index (ends of documents)
/// or X.ds.metadata (tokenizer, bytes of an id and number of ids) beside it. Files 000_X.ds, 001_X.ds, ... may share
/// one X.ds.metadata. Returns nothing for any other file. Throws an input error that names the file if the files do not
/// match, or if the width of the ids is neither 2 nor 4 bytes. Source: datatrove,
/// src/datatrove/pipeline/tokens/tokenizer.py and merger.py, src/datatrove/utils/dataset.py.
std::optional<TokenLayout> datatrove_tokens(const std::string& path, int64_t bytes, const std::string& shown);

/// Returns X.ds if `path` is X.ds.index, X.ds.metadata or X.ds.loss, and "" for any other name.
std::string datatrove_owner(const std::string& path);

/// Returns true if there is a file NUMBER_X.ds beside X.ds, the name of which is `owner`.
bool has_datatrove_parts(const std::string& owner);

/// The ends of documents in X.ds.index. Reads it in pieces.
class DatatroveIndex : public DocumentIndex {
 public:
  /// Throws an input error if the ends are not in order.
  explicit DatatroveIndex(const std::string& path);
  int64_t tokens() const { return tokens_; }  ///< end of the last document
  std::vector<int64_t> starts(int64_t begin, int64_t end) const override;

 private:
  int64_t end_of(int64_t document) const;

  io::InputFile file_;
  int64_t documents_ = 0, tokens_ = 0;
};

}  // namespace ashlar::data
