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
#include "data/build/build_plan.h"
#include "data/digest.h"
#include "data/sources/source_bytes.h"
#include "data/sources/source_list.h"
#include "data/sources/text_cutter.h"
#include "data/sources/text_repair.h"
#include "data/sources/token_file.h"
#include "data/tokenizer/tokenizer.h"

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
  const Tokenizer* tokenizer = nullptr;  ///< for CutRule::kWords
  DocumentSeparator separator;           ///< in files of text
  BadLines bad_lines = BadLines::kStop;
  /// For counting words: long texts are cut before a space that stands between two ASCII letters, where every splitting
  /// pattern cuts (or as cut_rule says, when there is none in 64 KB).
  bool between_words = false;
  std::string text_field;  ///< of JSONL
  int64_t vocab_size = 0;  ///< of files of tokens: ids are [0, vocab_size),
  int32_t eod_id = -1;     ///< and this one ends a document, if no index says where it ends
};

/// What reading a block left out or changed.
struct ReadCounts {
  int64_t empty_documents = 0;  ///< without text
  int64_t bad_lines = 0;        ///< JSON lines and elements left out
  int64_t bad_places = 0;       ///< bytes that were no UTF-8 or lone surrogates, left out or replaced
};

/// Finds the documents in blocks of input files. Used by many threads at once, each block read once and in about the
/// order of the plan: of compressed files it holds what is unpacked and not yet read.
class BlockReader {
 public:
  BlockReader(const SourceList& sources, DocumentRules rules)
      : sources_(sources), rules_(std::move(rules)), cutter_(rules_.cut_rule, rules_.tokenizer, rules_.separator) {}

  using Visit = std::function<void(const DocumentPiece&)>;
  using Check = std::function<void(const Digest&)>;
  /// Returns when the blocks before are done with, and is called before a text that is long and not divided is loaded
  /// or visited: one at a time is in memory.
  using Turn = std::function<void()>;

  /// Calls `check` with the digest of the block's bytes, then `visit` for each piece in order. A document without text
  /// is left out. A piece for which `visit` throws may come again, mended as rules.bad_lines says. All blocks of a file
  /// together have each of its bytes once. A TextError, from the lines themselves or thrown by `visit` with an offset
  /// in the piece's text, becomes an input error with file, line and byte offset.
  ReadCounts read(const Block& block, const Check& check, const Visit& visit, const Turn& turn) const;
  /// The same without looking into the bytes.
  Digest digest(const Block& block, const Turn& turn) const;

 private:
  /// A block's text, without what the blocks before and behind have.
  struct Text;
  /// Who gets the pieces of a block, when, and what is counted on the way.
  struct Reading {
    const Check& check;
    const Visit& visit;
    const Turn& turn;
    ReadCounts counts = {};
  };
  Text load_text(const Block& block, SourceBytes& file, const Turn& turn) const;
  void read_text(const Block& block, Reading& reading) const;
  void visit_documents(const Text& text, bool begins, Reading& reading) const;
  void visit_long(const DocumentPiece& piece, Reading& reading) const;
  void visit_mended(const DocumentPiece& piece, Reading& reading) const;
  /// The file's first block has all of its text, the others none.
  void read_whole(const Block& block, SourceBytes& file, Reading& reading) const;
  void read_lines(const Block& block, Reading& reading) const;
  void read_array(const Block& block, Reading& reading) const;
  /// One JSON object that lies at `offset` of its file. Its bytes are lost.
  void read_object(const SourceFile& source, int64_t offset, std::span<char> object, Reading& reading) const;
  void read_tokens(const Block& block, Reading& reading) const;
  std::shared_ptr<SourceBytes> open(int64_t file) const;
  std::shared_ptr<const MegatronIndex> index_of(int64_t file) const;
  void done(const Block& block, SourceBytes& bytes) const;
  /// `avoidable`: --bad-lines would go on.
  Error place_error(const SourceFile& file, int64_t offset, const std::string& reason, bool avoidable = true) const;

  const SourceList& sources_;
  DocumentRules rules_;
  TextCutter cutter_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::shared_ptr<SourceBytes>> packed_;  ///< by file
  mutable std::map<int64_t, std::shared_ptr<const MegatronIndex>> indexes_;
};

}  // namespace ashlar::data
