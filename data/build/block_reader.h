#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "data/build/bad_lines.h"
#include "data/build/build_plan.h"
#include "data/digest.h"
#include "data/sources/source_bytes.h"
#include "data/sources/source_list.h"
#include "data/sources/text_splitter.h"
#include "data/sources/token_file.h"
#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// A document, or the part of a document that lies in one block (see Block in build_plan.h). The content is `text`, or,
/// if the input is a file of token ids, `ids`. `ids` are unchanged and include the end-of-document ids in the file.
struct DocumentPiece {
  std::string_view text;
  std::span<const int32_t> ids;
  bool has_ids = false;
  bool begins = false;
  bool ends = false;
};

/// How a BlockReader separates documents, splits long texts and treats invalid text.
struct DocumentRules {
  SplitPoints split_points = SplitPoints::kAnyByte;
  const Tokenizer* tokenizer = nullptr;  ///< used only with SplitPoints::kWords
  DocumentSeparator separator;           ///< applies to text files
  BadLines bad_lines = BadLines::kStop;
  /// True for tokenizer training, which counts words. Long texts are then split before a space between two ASCII
  /// letters, since GPT-2's splitting pattern also splits there. If the next 64 KB have no such space, the text is
  /// split by split_points.
  bool between_words = false;
  std::string text_field;  ///< name of the text field of JSON objects, and of the column of Parquet files
  int64_t vocab_size = 0;  ///< token files: every id must be in [0, vocab_size)
  int32_t eod_id = -1;     ///< token files without an index: this id ends a document
};

/// Finds the documents in blocks of input files. Thread-safe. Each block must be read once, and roughly in the order of
/// BuildPlan::blocks, since the unpacked data of a compressed file stays in memory until the blocks that contain it are
/// read.
class BlockReader {
 public:
  BlockReader(const SourceList& sources, DocumentRules rules)
      : sources_(sources),
        rules_(std::move(rules)),
        splitter_(rules_.split_points, rules_.tokenizer, rules_.separator) {}

  using Visit = std::function<void(const DocumentPiece&)>;
  using Check = std::function<void(const Digest&)>;
  /// A function that waits until the results of all earlier blocks are consumed. BlockReader calls this function before
  /// loading or visiting a long undivided text, so that only one such text is in memory.
  using Turn = std::function<void()>;

  /// Calls `check` with the digest of the block's bytes, then `visit` for each piece in order. Every byte of a file's
  /// content belongs to exactly one block. Documents without text are skipped. `visit` may throw a TextError whose
  /// offset counts from the start of the piece. If the piece has invalid UTF-8 and rules.bad_lines is not kStop, the
  /// piece is then repaired and visited again. Otherwise the TextError becomes an input error that names file, line and
  /// byte offset.
  ReadCounts read(const Block& block, const Check& check, const Visit& visit, const Turn& turn) const;
  /// Returns the digest that `read` passes to `check`, without parsing the block.
  Digest digest(const Block& block, const Turn& turn) const;

 private:
  /// The bytes that were loaded for a block, and where the text of the block starts and stops in them.
  struct Text;
  /// The callbacks of one call of `read`, and its counts.
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
  /// Reads a block of a file that must not be split. The first block has the whole text, the others have no text.
  void read_whole(const Block& block, SourceBytes& file, Reading& reading) const;
  void read_lines(const Block& block, Reading& reading) const;
  void read_array(const Block& block, Reading& reading) const;
  /// Reads `object`, the bytes of one JSON object at byte `offset` of its file, and overwrites these bytes.
  void read_object(const SourceFile& source, int64_t offset, std::span<char> object, Reading& reading) const;
  void read_rows(const Block& block, Reading& reading) const;
  /// Reads one row of a Parquet file. `text` is nothing for a null.
  void read_row(const SourceFile& source, int64_t row, std::optional<std::string_view> text, Reading& reading) const;
  void read_tokens(const Block& block, Reading& reading) const;
  std::shared_ptr<SourceBytes> open(int64_t file) const;
  std::shared_ptr<const DocumentIndex> index_of(int64_t file) const;
  void done(const Block& block, SourceBytes& bytes) const;
  /// Returns an input error that names file, line and byte offset. If `avoidable` is true and an option such as
  /// --bad-lines avoids the error, the message names the option.
  Error place_error(const SourceFile& file, int64_t offset, const std::string& reason, bool avoidable = true) const;

  const SourceList& sources_;
  DocumentRules rules_;
  TextSplitter splitter_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::shared_ptr<SourceBytes>> packed_;  ///< open compressed files, by file index
  mutable std::map<int64_t, std::shared_ptr<const DocumentIndex>> indexes_;
};

}  // namespace ashlar::data
