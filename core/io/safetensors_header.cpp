#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"

namespace ashlar::io {
namespace {

struct DTypeRow {
  FileDType dtype;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<DTypeRow, 15> kDTypes = {{
    {FileDType::kBool, "BOOL", 1},
    {FileDType::kU8, "U8", 1},
    {FileDType::kI8, "I8", 1},
    {FileDType::kF8E5M2, "F8_E5M2", 1},
    {FileDType::kF8E4M3, "F8_E4M3", 1},
    {FileDType::kI16, "I16", 2},
    {FileDType::kU16, "U16", 2},
    {FileDType::kF16, "F16", 2},
    {FileDType::kBF16, "BF16", 2},
    {FileDType::kI32, "I32", 4},
    {FileDType::kU32, "U32", 4},
    {FileDType::kF32, "F32", 4},
    {FileDType::kF64, "F64", 8},
    {FileDType::kI64, "I64", 8},
    {FileDType::kU64, "U64", 8},
}};

const DTypeRow& row_of(FileDType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

/// Thrown for a problem of a header. The text lacks the file name, which parse_safetensors_header adds.
struct Malformed {
  std::string text;
};

template <typename... Parts>
[[noreturn]] void malformed(const Parts&... parts) {
  throw Malformed{str_cat(parts...)};
}

int64_t non_negative(const nlohmann::json& value, std::string_view tensor, std::string_view what) {
  if (!value.is_number_unsigned() ||
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    malformed("tensor ", printable(tensor), ": ", what, " must contain only non-negative integers below 2^63");
  }
  return value.get<int64_t>();
}

int64_t checked_bytes(const TensorSpec& tensor) {
  int64_t bytes = size_of(tensor.dtype);
  // With a dimension of zero the size is zero, even if the product of the other dimensions overflows.
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
  for (const int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      malformed("tensor ", printable(tensor.name), ": shape [", absl::StrJoin(tensor.shape, ","), "] is too large");
    }
  }
  return bytes;
}

TensorEntry parse_tensor(const std::string& name, const nlohmann::json& value, int64_t data_begin, int64_t file_bytes) {
  if (!value.is_object()) malformed("tensor ", printable(name), " is not described by an object");
  for (const auto& [key, ignored] : value.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      malformed("tensor ", printable(name), ": unknown field ", printable(key));
    }
  }
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!value.contains(key)) malformed("tensor ", printable(name), ": field '", key, "' is missing");
  }
  TensorEntry entry;
  entry.name = name;
  if (!value["dtype"].is_string()) malformed("tensor ", printable(name), ": dtype is not a string");
  const auto& dtype_name = value["dtype"].get_ref<const std::string&>();
  const auto dtype = file_dtype_from_name(dtype_name);
  if (!dtype) malformed("tensor ", printable(name), ": unknown dtype ", printable(dtype_name));
  entry.dtype = *dtype;
  if (!value["shape"].is_array()) malformed("tensor ", printable(name), ": shape is not a list");
  for (const auto& extent : value["shape"]) entry.shape.push_back(non_negative(extent, name, "shape"));
  const auto& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) malformed("tensor ", printable(name), ": data_offsets is not a pair");
  const int64_t begin = non_negative(offsets[0], name, "data_offsets");
  const int64_t end = non_negative(offsets[1], name, "data_offsets");
  const int64_t data_bytes = file_bytes - data_begin;
  if (begin > end || end > data_bytes) {
    malformed("tensor ", printable(name), ": data_offsets [", begin, ",", end, "] are outside the ", data_bytes,
              " bytes of data; the file may be truncated");
  }
  const int64_t expected = checked_bytes(entry);
  if (end - begin != expected) {
    malformed("tensor ", printable(name), ": data_offsets span ", end - begin, " bytes, dtype ", dtype_name,
              " and shape [", absl::StrJoin(entry.shape, ","), "] need ", expected);
  }
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

Metadata parse_metadata(const nlohmann::json& value) {
  if (!value.is_object()) malformed("__metadata__ is not an object");
  Metadata metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) malformed("__metadata__ entry ", printable(key), " is not a string");
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

SafetensorsHeader parse(std::string_view json, int64_t data_begin, int64_t file_bytes) {
  if (json.empty() || json.front() != '{') malformed("the header does not begin with '{'");
  const nlohmann::json root = parse_json(json, JsonKeys::kUnique);
  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {
    if (name == "__metadata__") {
      // The safetensors library treats null as absent metadata.
      if (!value.is_null()) header.metadata = parse_metadata(value);
    } else {
      header.tensors.push_back(parse_tensor(name, value, data_begin, file_bytes));
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t position = data_begin;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.begin != position) {
      malformed("tensor ", printable(tensor.name), " begins at data byte ", tensor.begin - data_begin, ", expected ",
                position - data_begin, ": tensors overlap or leave a gap");
    }
    position = tensor.end;
  }
  if (position != file_bytes) {
    malformed("the tensors end at byte ", position, ", the file at byte ", file_bytes,
              ": the file has extra bytes after the last tensor");
  }
  return header;
}

}  // namespace

int64_t size_of(FileDType dtype) { return row_of(dtype).bytes; }
std::string_view name_of(FileDType dtype) { return row_of(dtype).name; }

std::optional<FileDType> file_dtype_from_name(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

FileDType to_file_dtype(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return FileDType::kF32;
    case DType::kBFloat16: return FileDType::kBF16;
    case DType::kFloat64: return FileDType::kF64;
    case DType::kInt32: return FileDType::kI32;
    case DType::kInt64: return FileDType::kI64;
    case DType::kUInt8: return FileDType::kU8;
  }
  throw Bug("[safetensors] unknown dtype");
}

std::optional<DType> to_dtype(FileDType dtype) {
  switch (dtype) {
    case FileDType::kF32: return DType::kFloat32;
    case FileDType::kBF16: return DType::kBFloat16;
    case FileDType::kF64: return DType::kFloat64;
    case FileDType::kI32: return DType::kInt32;
    case FileDType::kI64: return DType::kInt64;
    case FileDType::kU8: return DType::kUInt8;
    default: return std::nullopt;
  }
}

int64_t TensorSpec::num_elems() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

int64_t TensorSpec::num_bytes() const { return num_elems() * size_of(dtype); }

SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_begin, int64_t file_bytes,
                                           const std::filesystem::path& file) {
  const auto damaged = [&](const std::string& text) {
    return damaged_error("safetensors", printable(file.string()), " is not a valid safetensors file: ", text,
                         "; download or write it again");
  };
  SafetensorsHeader header;
  try {
    reading_json([&](const std::string& sentence) { return damaged(str_cat("in the header, ", sentence)); },
                 [&] { header = parse(json, data_begin, file_bytes); });
  } catch (const Malformed& problem) {
    throw damaged(problem.text);
  }
  return header;
}

}  // namespace ashlar::io
