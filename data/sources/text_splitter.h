#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// Separator of documents in a text file: none, blank lines, or a text given by the user.
class DocumentSeparator {
 public:
  static constexpr size_t kMaxBytes = 128;

  DocumentSeparator() = default;
  /// "none", "blank-line" or the text itself.
  explicit DocumentSeparator(const std::string& option);

  explicit operator bool() const { return blank_line_ || !text_.empty(); }
  /// True if two adjacent separators enclose an empty document; otherwise they are one wide separator.
  bool counts_empty() const { return !text_.empty(); }
  /// The bytes of `text` between two documents: a run of blank lines, or the separator's text and one line break after
  /// it.
  struct Found {
    size_t begin = 0, end = 0;
  };
  /// Finds the first separator at or after `from`; `line_begins`: a line begins at `from`.
  std::optional<Found> find(std::string_view text, size_t from, bool line_begins) const;
  /// True if a file may be split at `at` into blocks that find the same separators as the whole: in the middle of a
  /// line, after a byte of a document, not near the separator's text.
  bool may_split(std::string_view text, size_t at) const;

 private:
  bool blank_line_ = false;
  std::string text_;
};

/// Finds places where a long text may be split into blocks. The decision depends only on the bytes around a place, so
/// that blocks read by different threads agree.
class TextSplitter {
 public:
  static constexpr size_t kContext = 512;  ///< bytes on each side that decide

  struct SplitPoint {
    size_t at = 0;      ///< end of the piece before
    size_t resume = 0;  ///< begin of the piece after
  };

  /// `tokenizer` is used for kWords. `rule` must not be kNowhere.
  TextSplitter(SplitPoints rule, const Tokenizer* tokenizer, DocumentSeparator separator)
      : rule_(rule), tokenizer_(tokenizer), separator_(std::move(separator)) {}

  /// Bytes of text that must precede the first tested place.
  size_t context() const { return rule_ == SplitPoints::kWords || separator_ ? kContext : 0; }
  /// Where a search began in `text`, and the position of `text` in its file. After a long stretch without a split, the
  /// tokenizer is also asked about some characters that no white space precedes. Their positions in the file decide
  /// which ones, so that a search that began earlier never finds a later split than another search.
  struct Search {
    size_t begin = 0;
    int64_t text_offset = 0;
  };
  /// Finds the first split point at or after `from`, and advances `from` to the first untested place. Returns nothing
  /// if `text` has no split point. `last`: the text ends where the document or file ends; otherwise more may be read.
  std::optional<SplitPoint> find(std::string_view text, size_t& from, bool last, const Search& search) const;

 private:
  std::optional<size_t> joint(std::string_view text, size_t at) const;

  SplitPoints rule_;
  const Tokenizer* tokenizer_;
  DocumentSeparator separator_;
};

}  // namespace ashlar::data
