#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// How one text file holds several documents: it does not, blank lines stand between them, or a text of the user's.
class DocumentSeparator {
 public:
  static constexpr size_t kMaxBytes = 128;

  DocumentSeparator() = default;
  /// "none", "blank-line" or the text itself.
  explicit DocumentSeparator(const std::string& option);

  explicit operator bool() const { return blank_line_ || !text_.empty(); }
  /// Whether nothing between two separators is an empty document, rather than a wider separator.
  bool counts_empty() const { return !text_.empty(); }
  /// Bytes of `text` between two documents. Blank lines: all that follow each other. A text: itself and one line break
  /// behind it.
  struct Found {
    size_t begin = 0, end = 0;
  };
  /// The first at or after `from`; `line_begins`: a line begins at `from`.
  std::optional<Found> find(std::string_view text, size_t from, bool line_begins) const;
  /// Whether a file may be cut at `at` into blocks that find the same separators as the whole: in the middle of a line,
  /// behind a byte of a document, not near the separator's text.
  bool may_cut(std::string_view text, size_t at) const;

 private:
  bool blank_line_ = false;
  std::string text_;
};

/// Finds places where a long text may be cut into blocks. Whether one is depends on the bytes around it alone, so that
/// blocks which are read by different threads agree.
class TextCutter {
 public:
  static constexpr size_t kContext = 512;  ///< bytes on each side that a place is judged by

  struct Cut {
    size_t at = 0;      ///< the piece before ends here
    size_t resume = 0;  ///< the piece behind begins here
  };

  /// `tokenizer` is asked under kWords. Not for kNowhere.
  TextCutter(CutRule rule, const Tokenizer* tokenizer, DocumentSeparator separator)
      : rule_(rule), tokenizer_(tokenizer), separator_(std::move(separator)) {}

  /// Bytes of text that must lie before the first place looked at.
  size_t context() const { return rule_ == CutRule::kWords || separator_ ? kContext : 0; }
  /// Where a search began in `text`, and the text in its file. Far behind the first the tokenizer is asked about some
  /// characters that no white space stands before: about which, their place in the file says, so that of two searches
  /// the one that began earlier never finds a later cut.
  struct Search {
    size_t begin = 0;
    int64_t text_offset = 0;
  };
  /// The first cut at or after `from`, which moves on to what was not looked at yet. Nothing when `text` holds none;
  /// `last`: it ends where the document or file does, otherwise more may be read.
  std::optional<Cut> find(std::string_view text, size_t& from, bool last, const Search& search) const;

 private:
  std::optional<size_t> joint(std::string_view text, size_t at) const;

  CutRule rule_;
  const Tokenizer* tokenizer_;
  DocumentSeparator separator_;
};

}  // namespace ashlar::data
