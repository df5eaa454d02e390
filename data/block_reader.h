#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "data/build_plan.h"
#include "data/digest.h"
#include "data/source_list.h"
#include "data/tokenizer.h"

namespace ashlar::data {

/// A document, or what a block holds of one.
struct DocumentPiece {
  std::string_view text;
  bool begins = false;
  bool ends = false;
};

/// Finds the documents in blocks of input files. Stateless apart from its arguments; used by many threads.
class BlockReader {
 public:
  BlockReader(const SourceList& sources, CutRule cut_rule, std::string text_field)
      : sources_(sources), cut_rule_(cut_rule), text_field_(std::move(text_field)) {}

  using Visit = std::function<void(const DocumentPiece&)>;
  using Check = std::function<void(const Digest&)>;

  /// Calls `check` with the digest of the block's bytes, then `visit` for each piece in order, and returns the number
  /// of documents without text, which are left out. All blocks of a file together have each of its bytes once. A
  /// TextError, from the lines themselves or thrown by `visit` with an offset in the piece's text, becomes an input
  /// error with file, line and byte offset.
  int64_t read(const Block& block, const Check& check, const Visit& visit) const;
  /// The same without looking into the bytes.
  Digest digest(const Block& block) const;

 private:
  int64_t read_text(const Block& block, const Check& check, const Visit& visit) const;
  int64_t read_lines(const Block& block, const Check& check, const Visit& visit) const;
  Error place_error(const SourceFile& file, int64_t offset, const std::string& reason) const;

  const SourceList& sources_;
  CutRule cut_rule_;
  std::string text_field_;
};

}  // namespace ashlar::data
