#include "data/parquet/footer.h"

#include <algorithm>
#include <optional>

#include "core/base/printable.h"
#include "data/parquet/thrift_compact.h"

namespace ashlar::data {
namespace {

using FieldType = ThriftReader::Type;

constexpr size_t kMaxFields = 10'000;   // fields of a schema
constexpr size_t kMaxPathBytes = 1024;  // bytes of the path of a column
constexpr size_t kMaxSchemaDepth = 100;
constexpr size_t kShownNames = 100;  // maximum number of bytes of the names of columns in a message

constexpr int64_t kRequired = 0, kRepeated = 2;      // FieldRepetitionType
constexpr int64_t kByteArray = 6;                    // Type
constexpr int64_t kUtf8 = 0, kEnum = 4, kJson = 19;  // ConvertedType

/// A field of the schema: a struct of the next `children` fields, or a column.
struct Field {
  std::string_view name;
  int64_t type = -1, repetition = kRequired, children = 0, converted = -1;
};

/// A column, in the order of a row group's chunks.
struct Leaf {
  std::string path;
  int64_t type = -1, converted = -1;
  int max_definition = 0;
  bool repeated = false;
};

Field read_field(ThriftReader& reader) {
  Field field;
  reader.structure([&](int64_t id, FieldType type) {
    switch (id) {
      case 1: field.type = reader.integer(type); return true;
      case 3: field.repetition = reader.integer(type); return true;
      case 4: field.name = reader.binary(type); return true;
      case 5: field.children = reader.integer(type); return true;
      case 6: field.converted = reader.integer(type); return true;
      default: return false;
    }
  });
  return field;
}

/// Returns the columns of a schema, which lists the fields depth first; the first field is the root.
std::vector<Leaf> leaves_of(const std::vector<Field>& fields) {
  struct Open {
    int64_t children = 0;
    Leaf so_far;
  };
  if (fields.empty()) throw damaged_parquet("its schema is empty");
  std::vector<Open> open = {{.children = fields[0].children}};
  std::vector<Leaf> leaves;
  for (size_t i = 1; i < fields.size(); ++i) {
    const Field& field = fields[i];
    while (!open.empty() && open.back().children == 0) open.pop_back();
    if (open.empty()) throw damaged_parquet("its schema has more fields than it declares");
    --open.back().children;
    Leaf leaf = open.back().so_far;
    leaf.path = str_cat(leaf.path, leaf.path.empty() ? "" : ".", field.name.substr(0, kMaxPathBytes));
    if (leaf.path.size() > kMaxPathBytes)
      throw ParquetFault{str_cat("has a column with a name of more than ", kMaxPathBytes, " bytes; rename it")};
    leaf.max_definition += field.repetition == kRequired ? 0 : 1;
    leaf.repeated = leaf.repeated || field.repetition == kRepeated;
    if (field.children > 0) {
      if (open.size() > kMaxSchemaDepth) throw damaged_parquet("its schema is nested too deeply");
      open.push_back({field.children, std::move(leaf)});
      continue;
    }
    leaf.type = field.type;
    leaf.converted = field.converted;
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

bool holds_strings(const Leaf& leaf) {
  return leaf.type == kByteArray &&
         (leaf.converted < 0 || leaf.converted == kUtf8 || leaf.converted == kEnum || leaf.converted == kJson);
}

std::string names_of_strings(const std::vector<Leaf>& leaves) {
  std::string names;
  for (const Leaf& leaf : leaves) {
    if (names.size() >= kShownNames) break;
    if (holds_strings(leaf) && !leaf.repeated) names += str_cat(names.empty() ? "" : ", ", printable(leaf.path));
  }
  return names.empty() ? "none" : names;
}

size_t find_leaf(const std::vector<Leaf>& leaves, std::string_view name) {
  const auto of_name = [&](const Leaf& leaf) { return leaf.path == name; };
  const auto found = std::find_if(leaves.begin(), leaves.end(), of_name);
  if (found == leaves.end()) {
    const bool nested = std::any_of(leaves.begin(), leaves.end(),
                                    [&](const Leaf& leaf) { return leaf.path.starts_with(str_cat(name, ".")); });
    throw ParquetFault{
        str_cat(nested ? "has a nested column " : "has no column ", printable(name),
                nested ? ", expected one string a row" : "",
                "; name the column of the text with --text-field; its columns of strings: ", names_of_strings(leaves))};
  }
  if (std::find_if(found + 1, leaves.end(), of_name) != leaves.end())
    throw ParquetFault{str_cat("has two columns ", printable(name), "; rename one of them")};
  if (found->repeated) {
    throw ParquetFault{str_cat("has lists in column ", printable(name),
                               ", expected one string a row; write a column of whole texts, or name another column ",
                               "with --text-field; its columns of strings: ", names_of_strings(leaves))};
  }
  if (!holds_strings(*found)) {
    throw ParquetFault{
        str_cat("has no strings in column ", printable(name),
                "; name the column of the text with --text-field; its columns of strings: ", names_of_strings(leaves))};
  }
  return static_cast<size_t>(found - leaves.begin());
}

/// The fields of ColumnMetaData and ColumnChunk that are needed.
struct ChunkFooter {
  bool elsewhere = false, encrypted = false, found = false;
  int64_t codec = -1, values = -1, data_page = -1, dictionary_page = -1, type = -1;
};

ChunkFooter read_column_chunk(ThriftReader& reader) {
  ChunkFooter chunk;
  const auto meta = [&](int64_t id, FieldType type) {
    switch (id) {
      case 1: chunk.type = reader.integer(type); return true;
      case 4: chunk.codec = reader.integer(type); return true;
      case 5: chunk.values = reader.integer(type); return true;
      case 9: chunk.data_page = reader.integer(type); return true;
      case 11: chunk.dictionary_page = reader.integer(type); return true;
      default: return false;
    }
  };
  reader.structure([&](int64_t id, FieldType type) {
    if (id == 1) chunk.elsewhere = !reader.binary(type).empty();
    if (id == 3 && type == FieldType::kStruct) {
      chunk.found = true;
      reader.structure(meta);
    }
    chunk.encrypted = chunk.encrypted || id == 8 || id == 9;
    return id == 1 || (id == 3 && type == FieldType::kStruct);
  });
  return chunk;
}

/// Returns the chunk of column `leaf` in a row group.
ColumnChunk read_row_group(ThriftReader& reader, size_t leaf, int64_t data_end, std::string_view name) {
  int64_t rows = -1;
  std::optional<ChunkFooter> found;
  reader.structure([&](int64_t id, FieldType type) {
    if (id == 3) rows = reader.integer(type);
    if (id == 1) {
      size_t column = 0;
      reader.list(type, FieldType::kStruct, [&] {
        const ChunkFooter chunk = read_column_chunk(reader);
        if (column++ == leaf) found = chunk;
      });
    }
    return id == 1 || id == 3;
  });
  if (!found) throw damaged_parquet("a row group has no column ", printable(name));
  if (found->elsewhere) {
    throw ParquetFault{str_cat("keeps column ", printable(name), " in another file, expected it in this one; write ",
                               "the file again with pyarrow or DuckDB")};
  }
  if (found->encrypted || !found->found)
    throw ParquetFault{str_cat("is encrypted in column ", printable(name), "; decrypt it, and write it again")};
  ColumnChunk chunk{.begin = found->data_page, .rows = rows};
  if (found->dictionary_page > 0) chunk.begin = std::min(chunk.begin, found->dictionary_page);
  if (rows < 0 || found->values != rows || found->type != kByteArray || (rows > 0 && chunk.begin < 4) ||
      chunk.begin > data_end) {
    throw damaged_parquet("a row group of ", rows, " rows has ", found->values, " values of column ", printable(name),
                          " at byte ", chunk.begin);
  }
  chunk.codec = codec_numbered(found->codec, name);
  return chunk;
}

std::vector<Field> read_schema(std::string_view footer, int64_t& rows) {
  std::vector<Field> fields;
  ThriftReader reader(footer);
  reader.structure([&](int64_t id, FieldType type) {
    if (id == 8) throw ParquetFault{"is encrypted; decrypt it, and write it again"};
    if (id == 3) rows = reader.integer(type);
    if (id == 2) {
      reader.list(type, FieldType::kStruct, [&] {
        if (fields.size() == kMaxFields)
          throw ParquetFault{str_cat("has more than ", kMaxFields, " fields; write the column of the text alone")};
        fields.push_back(read_field(reader));
      });
    }
    return id == 2 || id == 3;
  });
  return fields;
}

}  // namespace

ColumnFooter read_column_footer(std::string_view footer, int64_t data_end, std::string_view name) {
  try {
    int64_t rows = -1, counted = 0;
    const std::vector<Leaf> leaves = leaves_of(read_schema(footer, rows));
    const size_t leaf = find_leaf(leaves, name);
    ColumnFooter column{.max_definition = leaves[leaf].max_definition};
    ThriftReader reader(footer);
    reader.structure([&](int64_t id, FieldType type) {
      if (id != 4) return false;
      reader.list(type, FieldType::kStruct, [&] {
        column.chunks.push_back(read_row_group(reader, leaf, data_end, name));
        if (__builtin_add_overflow(counted, column.chunks.back().rows, &counted))
          throw damaged_parquet("its row groups have too many rows");
      });
      return true;
    });
    if (counted != rows) throw damaged_parquet("its footer says ", rows, " rows, its row groups have ", counted);
    return column;
  } catch (const ThriftReader::End&) {
    throw damaged_parquet("its footer ends early");
  }
}

}  // namespace ashlar::data
