#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/posix_file.h"
#include "data/digest.h"
#include "data/parquet/footer.h"
#include "data/parquet/page_header.h"

namespace ashlar::data {

/// True if a file begins (`head`) and ends as a Parquet file does.
bool is_parquet(std::string_view head, const io::InputFile& file);

/// Consecutive data pages of one row group: the unit that a thread reads.
struct PageRun {
  /// Bytes after decompression, headers of the pages too, counted over all runs. A dictionary counts with the first run
  /// of its row group.
  int64_t begin = 0, end = 0;
  int64_t bytes = 0;  ///< of the run's own pages
  int64_t chunk = 0;
  int64_t offset = 0, stored = 0;  ///< where the pages are in the file, and their size there
  int64_t first_row = 0, rows = 0;
  int64_t from_dictionary = 0;  ///< 1 if a page refers to the dictionary
};

/// A column of texts of a Parquet file. Holds the places of its pages, none of its texts. Thread-safe.
class TextColumn {
 public:
  /// Reads the footer and the headers of the pages of a column. A run has at most `run_bytes` bytes, or one larger
  /// page. `shown` is the name of the file in errors. Throws an input error if there is no such column, if it does not
  /// hold one string a row, and if the file is damaged, encrypted or truncated.
  TextColumn(std::string path, std::string shown, std::string column, int64_t run_bytes);

  const std::vector<PageRun>& runs() const { return runs_; }
  int64_t bytes() const { return runs_.empty() ? 0 : runs_.back().end; }
  Digest layout() const;  ///< of the places of all pages
  /// Returns the run of these bytes, nullptr if there is none.
  const PageRun* find(int64_t begin, int64_t end) const;

  /// Returns about how many bytes are needed to read a run.
  int64_t bytes_in_memory(const PageRun& run) const;

  /// A run as the file stores it.
  struct Stored {
    std::string pages, dictionary;
    Digest digest;  ///< of both
  };
  /// Returns nothing if the file has become too short.
  std::optional<Stored> load(const PageRun& run) const;
  /// Calls `visit(row, text)` for each row of a run; the text is nothing for a null, and valid during the call. Throws
  /// an input error, also after some calls, if a page is damaged or in an unknown encoding.
  using Visit = std::function<void(int64_t row, std::optional<std::string_view> text)>;
  void each_row(const PageRun& run, const Stored& stored, const Visit& visit) const;

 private:
  struct Chunk {
    ColumnChunk footer;
    int64_t dictionary_offset = 0, dictionary_stored = 0;  ///< the dictionary page; 0 if there is none
    int64_t dictionary_bytes = 0;                          ///< after decompression
  };
  class Headers;
  void read_footer(const io::InputFile& file);
  void find_pages(Headers& headers, size_t chunk, int64_t& row);
  void add_page(const PageHeader& header, int64_t offset, size_t chunk, int64_t row);
  Error refused(const std::string& reason) const;

  std::string path_, shown_, column_;
  int64_t run_bytes_;
  int64_t data_end_ = 0;  ///< where the footer begins
  int max_definition_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<PageRun> runs_;
};

}  // namespace ashlar::data
