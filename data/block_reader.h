#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "data/build_plan.h"
#include "data/digest.h"
#include "data/source_bytes.h"
#include "data/source_list.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

namespace ashlar::data {

/// A document, or what a block holds of one: text, or of a file of tokens its ids, the end of the document included.
struct DocumentPiece {
  std::string_view text;
  std::span<const int32_t> ids;
  bool has_ids = false;
  bool begins = false;
  bool ends = false;
};

/// How documents are told apart.
struct DocumentRules {
  CutRule cut_rule = CutRule::kAnyByte;
  /// For counting words: long texts are cut before a space that stands between two ASCII letters, where every splitting
  /// pattern cuts (or as cut_rule says, when there is none in 64 KB).
  bool between_words = false;
  std::string text_field;  ///< of JSONL
  int64_t vocab_size = 0;  ///< of files of tokens: ids are [0, vocab_size),
  int32_t eod_id = -1;     ///< and this one ends a document, if no index says where it ends
};

/// Finds the documents in blocks of input files. Used by many threads at once, each block read once and in about the
/// order of the plan: of compressed files it holds what is unpacked and not yet read.
class BlockReader {
 public:
  BlockReader(const SourceList& sources, DocumentRules rules) : sources_(sources), rules_(std::move(rules)) {}

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
  /// The file's first block has all of its text, the others none.
  int64_t read_whole(const Block& block, SourceBytes& file, const Check& check, const Visit& visit) const;
  int64_t read_lines(const Block& block, const Check& check, const Visit& visit) const;
  int64_t read_tokens(const Block& block, const Check& check, const Visit& visit) const;
  std::shared_ptr<SourceBytes> open(int64_t file) const;
  std::shared_ptr<const MegatronIndex> index_of(int64_t file) const;
  void done(const Block& block, SourceBytes& bytes) const;
  Error place_error(const SourceFile& file, int64_t offset, const std::string& reason) const;

  const SourceList& sources_;
  DocumentRules rules_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::shared_ptr<SourceBytes>> packed_;  ///< by file
  mutable std::map<int64_t, std::shared_ptr<const MegatronIndex>> indexes_;
};

}  // namespace ashlar::data
