#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ashlar::data {

enum class PageType : uint8_t { kData = 0, kIndex = 1, kDictionary = 2, kDataV2 = 3 };

/// The struct before each page.
struct PageHeader {
  PageType type = PageType::kData;
  int64_t header_bytes = 0;
  int64_t packed_bytes = 0;     ///< size of the page in the file
  int64_t bytes = 0;            ///< its size after decompression
  std::optional<uint32_t> crc;  ///< CRC-32 of the page in the file
  int64_t values = 0;           ///< nulls too
  int64_t encoding = -1;
  int64_t level_encoding = -1;   ///< kData: encoding of the definition levels
  int64_t definition_bytes = 0;  ///< kDataV2: size of the definition levels, which are not compressed
  int64_t repetition_bytes = 0;  ///< kDataV2: size of the repetition levels, which are not compressed
  bool packed = true;            ///< kDataV2: the values are compressed

  bool holds_rows() const { return type == PageType::kData || type == PageType::kDataV2; }
  int64_t stored_bytes() const { return header_bytes + packed_bytes; }
};

/// Parses the header at the beginning of `bytes`. Returns nothing if the bytes end inside it. Throws ParquetFault if it
/// is damaged, or if the page is larger than kMaxPageBytes.
/// Source: Apache Parquet, parquet.thrift.
std::optional<PageHeader> parse_page_header(std::string_view bytes);

constexpr int64_t kMaxPageBytes = int64_t{1} << 30;

}  // namespace ashlar::data
