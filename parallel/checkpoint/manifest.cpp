#include "parallel/checkpoint/manifest.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/base/error.h"
#include "core/base/hex.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"

namespace ashlar::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kChecksumOpen = "{\"checksum\":\"";
constexpr std::string_view kChecksumClose = "\",\n";
constexpr size_t kChecksumDigits = 8;
constexpr size_t kFirstLineBytes = kChecksumOpen.size() + kChecksumDigits + kChecksumClose.size();

std::string first_line(std::string_view rest) { return str_cat(kChecksumOpen, hex32(io::crc32(rest)), kChecksumClose); }

/// Thrown for an inconsistency in a manifest. parse_manifest converts it to an error with the file name.
struct Contradiction {
  std::string text;
};

template <typename... Parts>
[[noreturn]] void contradiction(const Parts&... parts) {
  throw Contradiction{str_cat(parts...)};
}

std::string block_text(const Block& b) {
  return str_cat("rows ", b.row, " to ", b.row + b.rows, ", columns ", b.col, " to ", b.col + b.cols);
}

/// Checks that the non-empty blocks of a tensor are disjoint, by a line sweep over rows. A block that begins at the
/// line is compared only with its left and right neighbours among the blocks that intersect the line: if it overlaps
/// any of them, it overlaps a neighbour. So n blocks cost O(n log n), which is fast even if a damaged manifest lists a
/// million.
void check_apart(const TensorRecord& tensor, const std::vector<Block>& blocks) {
  struct Edge {
    int64_t row;
    bool begins;
    const Block* block;
  };
  std::vector<Edge> edges;
  edges.reserve(2 * blocks.size());
  for (const Block& b : blocks) {
    edges.push_back({b.row, true, &b});
    edges.push_back({b.row + b.rows, false, &b});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return std::tie(a.row, a.begins) < std::tie(b.row, b.begins);  // at equal rows, ends come before begins
  });
  std::map<int64_t, const Block*> active;  // blocks that intersect the line, by first column
  const auto check = [&](const Block& left, const Block& right) {
    if (left.col + left.cols <= right.col) return;
    contradiction("tensor ", printable(tensor.name), ": slices ", block_text(left), " and ", block_text(right),
                  " overlap");
  };
  for (const Edge& edge : edges) {
    if (!edge.begins) {
      active.erase(edge.block->col);
      continue;
    }
    const auto next = active.lower_bound(edge.block->col);
    if (next != active.begin()) check(*std::prev(next)->second, *edge.block);
    if (next != active.end()) check(*edge.block, *next->second);
    active.emplace_hint(next, edge.block->col, edge.block);
  }
}

/// Checks that the blocks tile the tensor: every block is inside the tensor, the blocks are disjoint, and their areas
/// add up to the size of the tensor.
void check_tiling(const TensorRecord& tensor) {
  const int64_t rows = tensor.matrix_rows();
  const int64_t cols = tensor.matrix_cols();
  std::vector<Block> blocks;
  for (const Slice& slice : tensor.slices) {
    const Block& b = slice.block;
    if (b.row < 0 || b.col < 0 || b.rows < 0 || b.cols < 0 || b.rows > rows || b.cols > cols || b.row > rows - b.rows ||
        b.col > cols - b.cols) {
      contradiction("tensor ", printable(tensor.name), ": slice ", block_text(b), " is outside ", rows, " x ", cols);
    }
    if (b.rows * b.cols > 0) blocks.push_back(b);
  }
  check_apart(tensor, blocks);
  int64_t covered = 0;  // cannot overflow, since the blocks are disjoint and inside the tensor
  for (const Block& b : blocks) covered += b.rows * b.cols;
  if (covered != rows * cols) {
    contradiction("tensor ", printable(tensor.name), ": slices cover ", covered, " of ", rows * cols, " elements");
  }
}

Json to_json(const TrainingState& s) {
  return {{"step", s.step},
          {"position_samples", s.position_samples},
          {"tokens", s.tokens},
          {"seed", s.seed},
          {"philox_step", s.philox_step}};
}

Json to_json(const FileRecord& file) {
  std::string crcs;
  for (const uint32_t crc : file.checksums.crcs) crcs += hex32(crc);
  return {{"name", file.name},
          {"bytes", file.checksums.total_bytes},
          {"chunk_bytes", file.checksums.chunk_bytes},
          {"crc32", std::move(crcs)}};
}

Json to_json(const TensorRecord& tensor, const std::vector<FileRecord>& files) {
  Json slices = Json::array();
  for (const Slice& s : tensor.slices) {
    Json slice = {{"file", files.at(static_cast<size_t>(s.file)).name},
                  {"rows", {s.block.row, s.block.row + s.block.rows}},
                  {"cols", {s.block.col, s.block.col + s.block.cols}}};
    if (s.stored_as != tensor.name) slice["stored_as"] = s.stored_as;
    slices.push_back(std::move(slice));
  }
  return {{"name", tensor.name},
          {"group", name_of(tensor.group)},
          {"dtype", io::name_of(tensor.dtype)},
          {"shape", tensor.shape},
          {"slices", std::move(slices)}};
}

/// Reads a field. The error names the key if it is missing or has the wrong type.
template <typename T>
T field(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) contradiction("'", key, "' is missing");
  try {
    return object[key].get<T>();
  } catch (const nlohmann::json::exception&) {
    contradiction("'", key, "' has the wrong type");
  }
}

/// Reads a count. A negative value is an error. A number above the range of int64_t is an error too: the JSON library
/// converts it to a negative value or to a floating-point number.
int64_t count_field(const Json& object, const char* key) {
  const auto value = field<int64_t>(object, key);
  if (!object[key].is_number_integer() || value < 0) contradiction("'", key, "' is not a count");
  return value;
}

/// Reads a count of at most `most`, a limit far above the count of any run. The limit ensures that sums and products of
/// counts do not overflow.
int64_t count_field(const Json& object, const char* key, int64_t most) {
  const int64_t value = count_field(object, key);
  if (value > most) contradiction("'", key, "' is ", value, ", more than the ", most, " that a run can reach");
  return value;
}

const Json& list_field(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_array())
    contradiction("'", key, "' is not a list");
  return object[key];
}

TrainingState state_from(const Json& json) {
  constexpr int64_t kMostSteps = 1'000'000'000'000, kMostSamples = int64_t{1} << 53;
  return {.step = count_field(json, "step", kMostSteps),
          .position_samples = count_field(json, "position_samples", kMostSamples),
          .tokens = count_field(json, "tokens", kMostSamples),
          .seed = field<uint64_t>(json, "seed"),
          .philox_step = field<uint64_t>(json, "philox_step")};
}

FileRecord file_from(const Json& json) {
  FileRecord file;
  file.name = field<std::string>(json, "name");
  if (file.name.empty() || file.name == "." || file.name == ".." || file.name.find('/') != std::string::npos) {
    contradiction("file name ", printable(file.name), " is not a plain name");
  }
  file.checksums.total_bytes = count_field(json, "bytes");
  file.checksums.chunk_bytes = count_field(json, "chunk_bytes");
  const auto digits = field<std::string>(json, "crc32");
  for (size_t at = 0; at < digits.size(); at += kChecksumDigits) {
    uint32_t crc = 0;
    if (!absl::SimpleHexAtoi(digits.substr(at, kChecksumDigits), &crc)) contradiction("'crc32' is not hexadecimal");
    file.checksums.crcs.push_back(crc);
  }
  if (digits.size() % kChecksumDigits != 0 || !file.checksums.is_consistent()) {
    contradiction("file ", printable(file.name), " has ", file.checksums.crcs.size(), " checksums for ",
                  file.checksums.total_bytes, " bytes");
  }
  return file;
}

std::pair<int64_t, int64_t> range_field(const Json& object, const char* key) {
  const auto range = field<std::vector<int64_t>>(object, key);
  if (range.size() != 2 || range[0] < 0 || range[1] < range[0]) contradiction("'", key, "' is not a range");
  return {range[0], range[1] - range[0]};
}

TensorRecord tensor_from(const Json& json, const std::unordered_map<std::string, int64_t>& file_index) {
  TensorRecord tensor;
  tensor.name = field<std::string>(json, "name");
  const auto group = field<std::string>(json, "group");
  if (!parse_enum(group, tensor.group)) {
    contradiction("tensor ", printable(tensor.name), ": unknown group ", printable(group));
  }
  const auto dtype = io::file_dtype_from_name(field<std::string>(json, "dtype"));
  if (!dtype) contradiction("tensor ", printable(tensor.name), ": unknown dtype");
  tensor.dtype = *dtype;
  tensor.shape = field<std::vector<int64_t>>(json, "shape");
  int64_t bytes = io::size_of(tensor.dtype);
  for (const int64_t extent : tensor.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) {
      contradiction("tensor ", printable(tensor.name), ": its shape is negative or too large");
    }
  }
  for (const Json& value : list_field(json, "slices")) {
    Slice slice;
    const auto file = file_index.find(field<std::string>(value, "file"));
    if (file == file_index.end())
      contradiction("tensor ", printable(tensor.name), ": a slice is in a file that is not listed");
    slice.file = file->second;
    slice.stored_as = value.contains("stored_as") ? field<std::string>(value, "stored_as") : tensor.name;
    std::tie(slice.block.row, slice.block.rows) = range_field(value, "rows");
    std::tie(slice.block.col, slice.block.cols) = range_field(value, "cols");
    tensor.slices.push_back(std::move(slice));
  }
  return tensor;
}

Manifest manifest_from(const Json& root) {
  Manifest manifest;
  if (!root.contains("state")) contradiction("'state' is missing");
  if (!root["state"].is_null()) manifest.state = state_from(root["state"]);
  manifest.config_toml = field<std::string>(root, "config_toml");
  manifest.tokenizer_json = field<std::string>(root, "tokenizer_json");
  manifest.metadata = field<io::Metadata>(root, "metadata");
  if (root.contains("data")) {
    for (const Json& value : list_field(root, "data"))
      manifest.data.push_back({field<std::string>(value, "tokenizer"), field<std::string>(value, "tokens")});
  }
  std::unordered_map<std::string, int64_t> file_index;
  for (const Json& value : list_field(root, "files")) {
    FileRecord file = file_from(value);
    if (!file_index.emplace(file.name, static_cast<int64_t>(manifest.files.size())).second) {
      contradiction("file ", printable(file.name), " is listed twice");
    }
    manifest.files.push_back(std::move(file));
  }
  for (const Json& value : list_field(root, "tensors")) {
    manifest.tensors.push_back(tensor_from(value, file_index));
    const size_t n = manifest.tensors.size();
    if (n > 1 && manifest.tensors[n - 2].name >= manifest.tensors[n - 1].name) {
      contradiction("tensor ", printable(manifest.tensors[n - 1].name), " is listed twice or out of order");
    }
  }
  return manifest;
}

Json to_json(const Manifest& manifest) {
  Json root = Json::object();
  root["format"] = kFormat;
  root["version"] = kVersion;
  root["state"] = manifest.state ? to_json(*manifest.state) : Json(nullptr);
  root["metadata"] = manifest.metadata;
  for (const DataRecord& source : manifest.data)
    root["data"].push_back({{"tokenizer", source.tokenizer}, {"tokens", source.tokens}});
  Json files = Json::array();
  for (const FileRecord& file : manifest.files) files.push_back(to_json(file));
  root["files"] = std::move(files);
  Json tensors = Json::array();
  for (const TensorRecord& tensor : manifest.tensors) tensors.push_back(to_json(tensor, manifest.files));
  root["tensors"] = std::move(tensors);
  root["config_toml"] = manifest.config_toml;
  root["tokenizer_json"] = manifest.tokenizer_json;
  return root;
}

std::string dump(const Json& root, int indent) {
  try {
    return root.dump(indent);
  } catch (const nlohmann::json::type_error&) {
    throw input_error("checkpoint",
                      "configuration, tokenizer, metadata or a tensor's name is not UTF-8 and cannot be saved; "
                      "encode that text as UTF-8");
  }
}

/// Returns the error for a manifest.json that does not begin with the checksum line: it belongs to another program, or
/// it is damaged.
Error not_ours(std::string_view text, const std::filesystem::path& path) {
  const nlohmann::json json = io::try_parse_json(text).value_or(nlohmann::json());
  if (json.is_object() && json.contains("format") && json["format"].is_string() && json["format"] != kFormat) {
    return input_error("checkpoint", "expected a manifest of format ", kFormat, ", got format ",
                       printable(json["format"].get<std::string>()), " in ", printable(path.string()),
                       "; give a checkpoint or a run directory");
  }
  return damaged_error("checkpoint", printable(path.string()),
                       " is damaged: expected its checksum in the first line, got none; use an older checkpoint");
}

}  // namespace

int64_t TensorRecord::matrix_rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

int64_t TensorRecord::matrix_cols() const { return shape.empty() ? 1 : shape.back(); }

int64_t Manifest::total_bytes() const {
  int64_t bytes = 0;
  for (const FileRecord& file : files) bytes += file.checksums.total_bytes;
  return bytes;
}

std::string manifest_text(const Manifest& manifest) {
  try {
    for (const TensorRecord& tensor : manifest.tensors) check_tiling(tensor);
  } catch (const Contradiction& problem) {
    throw Bug(str_cat("[checkpoint] ", problem.text));
  }
  const std::string rest = dump(to_json(manifest), 1).substr(2) + "\n";  // without "{\n": first_line writes the brace
  return first_line(rest) + rest;
}

std::string part_text(const Manifest& part) { return dump(to_json(part), -1); }

Manifest parse_part(std::string_view text) {
  try {
    return manifest_from(io::parse_ordered_json(text));
  } catch (const Contradiction& problem) {
    throw Bug(str_cat("[checkpoint] a rank's part: ", problem.text));
  }
}

Manifest parse_manifest(std::string_view text, const std::filesystem::path& path) {
  if (text.size() < kFirstLineBytes || text.substr(0, kChecksumOpen.size()) != kChecksumOpen)
    throw not_ours(text, path);
  const std::string_view rest = text.substr(kFirstLineBytes);
  const std::string expected = first_line(rest);
  if (text.substr(0, kFirstLineBytes) != expected) {
    throw damaged_error("checkpoint", printable(path.string()), " is damaged: its text has checksum ",
                        expected.substr(kChecksumOpen.size(), kChecksumDigits), ", but its first line has ",
                        printable(text.substr(kChecksumOpen.size(), kChecksumDigits)), "; use an older checkpoint");
  }
  const auto invalid = [&](const std::string& problem) {
    return damaged_error("checkpoint", printable(path.string()), " is not a valid manifest: ", problem,
                         "; use an older checkpoint");
  };
  Manifest manifest;
  try {
    io::reading_json(invalid, [&] {
      const Json root = io::parse_ordered_json(text, io::JsonKeys::kUnique);
      const auto format = field<std::string>(root, "format");
      if (format != kFormat) {
        throw input_error("checkpoint", "expected format ", kFormat, ", got ", printable(format), " in ",
                          printable(path.string()), "; give a checkpoint or a run directory");
      }
      const int64_t version = count_field(root, "version");
      if (version > kVersion) {
        throw input_error("checkpoint", printable(path.string()), " has version ", version,
                          ", but this program reads up to version ", kVersion,
                          "; use the newer ashlar that wrote this checkpoint");
      }
      manifest = manifest_from(root);
      for (const TensorRecord& tensor : manifest.tensors) check_tiling(tensor);
    });
  } catch (const Contradiction& problem) {
    throw invalid(problem.text);
  }
  return manifest;
}

}  // namespace ashlar::checkpoint
