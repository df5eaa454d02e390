#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "data/build/build_plan.h"
#include "data/digest.h"
#include "data/sources/source_bytes.h"
#include "data/sources/source_list.h"
#include "data/sources/text_repair.h"
#include "data/sources/text_splitter.h"
#include "data/sources/token_file.h"
#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// A document, or the part of it in a block: text, or ids for a file of tokens, including the end-of-document id.
struct DocumentPiece {
  std::string_view text;
  std::span<const int32_t> ids;
  bool has_ids = false;
  bool begins = false;
  bool ends = false;
};

/// Rules that separate documents.
struct DocumentRules {
  SplitPoints split_points = SplitPoints::kAnyByte;
  const Tokenizer* tokenizer = nullptr;  ///< used with SplitPoints::kWords
  DocumentSeparator separator;           ///< used for text files
  BadLines bad_lines = BadLines::kStop;
  /// Used to count words. Long texts are then split before a space between two ASCII letters, where every splitting
  /// pattern splits. If there is none in 64 KB, split_points applies.
  bool between_words = false;
  std::string text_field;  ///< name of the text field of JSON objects
  int64_t vocab_size = 0;  ///< for token files: ids are in [0, vocab_size),
  int32_t eod_id = -1;     ///< and this id ends a document, if there is no index
};

/// Counts of items skipped or changed while reading a block.
struct ReadCounts {
  int64_t empty_documents = 0;  ///< documents without text
  int64_t bad_lines = 0;        ///< JSON lines and elements skipped
  int64_t bad_places = 0;       ///< invalid UTF-8 or lone surrogates, skipped or replaced
};

/// Finds the documents in blocks of input files. Many threads may use it at once. Each block must be read once, and
/// roughly in the order of the plan, since unpacked data of compressed files stays in memory until it is read.
class BlockReader {
 public:
  BlockReader(const SourceList& sources, DocumentRules rules)
      : sources_(sources),
        rules_(std::move(rules)),
        splitter_(rules_.split_points, rules_.tokenizer, rules_.separator) {}

  using Visit = std::function<void(const DocumentPiece&)>;
  using Check = std::function<void(const Digest&)>;
  /// A function that returns when all earlier blocks are consumed. It is called before a long undivided text is loaded
  /// or visited, so that only one such text is in memory.
  using Turn = std::function<void()>;

  /// Calls `check` with the digest of the block's bytes, then `visit` for each piece in order. Documents without text
  /// are skipped. If `visit` throws, the piece may be visited again after repair (rules.bad_lines). The blocks of a
  /// file together contain each of its bytes once. A TextError, from the lines themselves or thrown by `visit` with an
  /// offset in the piece's text, becomes an input error with file, line and byte offset.
  ReadCounts read(const Block& block, const Check& check, const Visit& visit, const Turn& turn) const;
  /// Returns the digest only, without parsing.
  Digest digest(const Block& block, const Turn& turn) const;

 private:
  /// The text of a block, without the parts that belong to its neighbours.
  struct Text;
  /// The consumer of a block's pieces, and the counts.
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
  /// Reads a file that is not split: its first block has all of its text, its other blocks have none.
  void read_whole(const Block& block, SourceBytes& file, Reading& reading) const;
  void read_lines(const Block& block, Reading& reading) const;
  void read_array(const Block& block, Reading& reading) const;
  /// One JSON object at `offset` of its file. Overwrites its bytes.
  void read_object(const SourceFile& source, int64_t offset, std::span<char> object, Reading& reading) const;
  void read_tokens(const Block& block, Reading& reading) const;
  std::shared_ptr<SourceBytes> open(int64_t file) const;
  std::shared_ptr<const MegatronIndex> index_of(int64_t file) const;
  void done(const Block& block, SourceBytes& bytes) const;
  /// `avoidable`: --bad-lines would avoid the error.
  Error place_error(const SourceFile& file, int64_t offset, const std::string& reason, bool avoidable = true) const;

  const SourceList& sources_;
  DocumentRules rules_;
  TextSplitter splitter_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::shared_ptr<SourceBytes>> packed_;  ///< compressed files, by file index
  mutable std::map<int64_t, std::shared_ptr<const MegatronIndex>> indexes_;
};

}  // namespace ashlar::data
