#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/parquet/codec.h"

namespace ashlar::data {

/// The pages of one column in one row group.
struct ColumnChunk {
  ParquetCodec codec = ParquetCodec::kUncompressed;
  int64_t begin = 0;  ///< file offset of the first page
  int64_t rows = 0;
};

/// A column of strings, as the footer of the file describes it.
struct ColumnFooter {
  int max_definition = 0;  ///< number of optional fields on the way to the column; a lower level is a null
  std::vector<ColumnChunk> chunks;
};

/// Reads the footer, a Thrift struct, and finds the column `name`: the path of its field, with dots between the fields
/// of structs. `data_end` is the file offset of the footer. Throws ParquetFault if there is no such column, if it does
/// not have one string per row, if it is encrypted, compressed in an unknown way or in another file, and if the footer
/// is damaged.
/// Source: Apache Parquet, parquet.thrift.
ColumnFooter read_column_footer(std::string_view footer, int64_t data_end, std::string_view name);

}  // namespace ashlar::data
