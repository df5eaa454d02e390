#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/parquet/codec.h"
#include "data/parquet/page_header.h"

namespace ashlar::data {

/// Called for each row of a page in order, with its text, or nothing for a null. The text is valid during the call.
using VisitText = std::function<void(std::optional<std::string_view>)>;

/// A page after decompression.
class UnpackedPage {
 public:
  /// `stored` is the page in the file, without its header. Throws ParquetFault if its checksum differs or if it cannot
  /// be decompressed. `stored` must outlive this object.
  UnpackedPage(const PageHeader& header, ParquetCodec codec, std::string_view stored);
  const PageHeader& header() const { return header_; }
  std::string_view levels() const { return levels_; }  ///< kDataV2: the definition levels
  std::string_view body() const { return body_; }      ///< the rest

 private:
  PageHeader header_;
  std::unique_ptr<char[]> memory_;
  std::string_view levels_, body_;
};

/// Returns the texts of a dictionary page, as views of the page.
std::vector<std::string_view> dictionary_of(const UnpackedPage& page);

bool uses_dictionary(const PageHeader& header);

/// Calls `visit` for each row of a data page. `dictionary` is used if uses_dictionary(page.header()). `max_definition`
/// is the level of a value that is not null. Throws ParquetFault, also after some calls, if the page is damaged, and if
/// its encoding is not one of PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY, DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY.
/// Source: Apache Parquet, Encodings.md.
void each_text(const UnpackedPage& page, int max_definition, std::span<const std::string_view> dictionary,
               const VisitText& visit);

}  // namespace ashlar::data
