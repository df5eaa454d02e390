#include "data/parquet/page_header.h"

#include <algorithm>

#include "data/parquet/thrift_compact.h"

namespace ashlar::data {
namespace {

using ThriftType = ThriftReader::Type;

void check_page_header(const PageHeader& header, int64_t type, bool described) {
  if (type < 0 || type > static_cast<int64_t>(PageType::kDataV2)) throw damaged_parquet("a page has type ", type);
  const bool fits = header.packed_bytes >= 0 && header.bytes >= 0 && header.values >= 0 &&
                    header.definition_bytes >= 0 && header.repetition_bytes >= 0 &&
                    header.definition_bytes + header.repetition_bytes <= std::min(header.packed_bytes, header.bytes);
  if (!fits || (!described && header.type != PageType::kIndex))
    throw damaged_parquet("the header of a page has impossible sizes");
  if (header.packed_bytes > kMaxPageBytes || header.bytes > kMaxPageBytes) {
    throw ParquetFault{str_cat("has a page of ", std::max(header.packed_bytes, header.bytes),
                               " bytes, expected at most ", kMaxPageBytes, "; write it again with smaller pages")};
  }
}

}  // namespace

std::optional<PageHeader> parse_page_header(std::string_view bytes) {
  PageHeader header;
  int64_t type = -1;
  bool described = false;  // the struct of the page's type is there
  ThriftReader reader(bytes);
  const auto data = [&](int64_t id, ThriftType field) {
    if (id == 1) header.values = reader.integer(field);
    if (id == 2) header.encoding = reader.integer(field);
    if (id == 3 && header.type == PageType::kData) header.level_encoding = reader.integer(field);
    return id <= 2 || (id == 3 && header.type == PageType::kData);
  };
  const auto data_v2 = [&](int64_t id, ThriftType field) {
    switch (id) {
      case 1: header.values = reader.integer(field); return true;
      case 4: header.encoding = reader.integer(field); return true;
      case 5: header.definition_bytes = reader.integer(field); return true;
      case 6: header.repetition_bytes = reader.integer(field); return true;
      case 7: header.packed = reader.boolean(field); return true;
      default: return false;
    }
  };
  try {
    reader.structure([&](int64_t id, ThriftType field) {
      switch (id) {
        case 1:
          type = reader.integer(field);
          header.type = static_cast<PageType>(type);
          return true;
        case 2: header.bytes = reader.integer(field); return true;
        case 3: header.packed_bytes = reader.integer(field); return true;
        case 4: header.crc = static_cast<uint32_t>(reader.integer(field)); return true;
        default: break;
      }
      if (field != ThriftType::kStruct) return false;
      const bool one = (id == 5 && header.type == PageType::kData) || (id == 7 && header.type == PageType::kDictionary);
      const bool two = id == 8 && header.type == PageType::kDataV2;
      if (one) reader.structure(data);
      if (two) reader.structure(data_v2);
      described = described || one || two;
      return one || two;
    });
  } catch (const ThriftReader::End&) {
    return std::nullopt;
  }
  check_page_header(header, type, described);
  header.header_bytes = static_cast<int64_t>(reader.consumed());
  return header;
}

}  // namespace ashlar::data
