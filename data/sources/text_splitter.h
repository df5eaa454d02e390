#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// Separator of documents in a text file: none, blank lines, or a text that the user gives.
class DocumentSeparator {
 public:
  static constexpr size_t kMaxBytes = 128;

  DocumentSeparator() = default;
  /// `option` is "none", "blank-line" or the text of the separator.
  explicit DocumentSeparator(const std::string& option);

  explicit operator bool() const { return blank_line_ || !text_.empty(); }
  /// True if two adjacent separators enclose an empty document. False if they count as one wide separator.
  bool counts_empty() const { return !text_.empty(); }
  /// The bytes [begin, end) that separate two documents of a text: a run of blank lines, or the text of the separator
  /// and one line break after it.
  struct Found {
    size_t begin = 0, end = 0;
  };
  /// Finds the first separator at or after `from`. `line_begins` is true if a line begins at `from`.
  std::optional<Found> find(std::string_view text, size_t from, bool line_begins) const;
  /// True if a file may be split at `at` such that a search in each block finds the same separators as a search in the
  /// whole file. The place must follow a character other than white space and must not be inside or directly after a
  /// separator.
  bool may_split(std::string_view text, size_t at) const;

 private:
  bool blank_line_ = false;
  std::string text_;
};

/// Finds places where a long text may be split into blocks. Whether the text may be split at a place depends only on
/// the bytes around the place. Therefore the threads that read two adjacent blocks find the same split point between
/// these blocks.
class TextSplitter {
 public:
  static constexpr size_t kContext = 512;  ///< number of bytes examined on each side of a place

  struct SplitPoint {
    size_t at = 0;      ///< end of the piece before the split
    size_t resume = 0;  ///< beginning of the piece after the split
  };

  /// `tokenizer` is used for kWords. `rule` must not be kNowhere.
  TextSplitter(SplitPoints rule, const Tokenizer* tokenizer, DocumentSeparator separator)
      : rule_(rule), tokenizer_(tokenizer), separator_(std::move(separator)) {}

  /// Number of bytes of text that must precede the first tested place.
  size_t context() const { return rule_ == SplitPoints::kWords || separator_ ? kContext : 0; }
  /// Where a search began in `text`, and the offset of `text` in its file. After 64 KB without a split, the search also
  /// tests some places that are not before white space or punctuation. These places are chosen by their offsets in the
  /// file. A search that begins earlier therefore tests every place that a later search tests, and never finds a later
  /// split point than the later search.
  struct Search {
    size_t begin = 0;
    int64_t text_offset = 0;
  };
  /// Returns the first split point at or after `from`. Returns nothing if no tested place is a split point; then `from`
  /// is advanced to the first untested place, if there is one. `last` is true if `text` ends where the document or file
  /// ends; otherwise the caller may read more text and search again.
  std::optional<SplitPoint> find(std::string_view text, size_t& from, bool last, const Search& search) const;

 private:
  std::optional<size_t> joint(std::string_view text, size_t at) const;

  SplitPoints rule_;
  const Tokenizer* tokenizer_;
  DocumentSeparator separator_;
};

}  // namespace ashlar::data
