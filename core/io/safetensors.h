#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/dtype.h"
#include "core/io/atomic_file.h"
#include "core/io/checksum.h"

namespace ashlar::io {

/// The element types of the safetensors format, with its names. Ashlar does not compute with all of them, but it can
/// list and copy files with any of them.
enum class FileDType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
};

int64_t size_of(FileDType dtype);           ///< bytes of one element
std::string_view name_of(FileDType dtype);  ///< "F32", "BF16", ...
std::optional<FileDType> file_dtype_from_name(std::string_view name);
FileDType to_file_dtype(DType dtype);
std::optional<DType> to_dtype(FileDType dtype);  ///< empty for types without arithmetic in Ashlar

/// A tensor as a file declares it: row-major, little-endian.
struct TensorSpec {
  std::string name;
  FileDType dtype = FileDType::kF32;
  std::vector<int64_t> shape;  ///< empty for a scalar

  int64_t num_elems() const;
  int64_t num_bytes() const;
};

/// A tensor in a file: bytes [begin, end) counted from the start of the file.
struct TensorEntry : TensorSpec {
  int64_t begin = 0;
  int64_t end = 0;
};

using Metadata = std::map<std::string, std::string>;

/// Layout: 8-byte little-endian header length, JSON header, data (https://github.com/huggingface/safetensors#format).
struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< ordered by their position in the file
  Metadata metadata;
};

/// Validates and parses the JSON text of a header. `data_begin` and `file_bytes` locate the data; `file` is used in
/// errors. Any deviation from the format (types, duplicate names, offsets that overlap, leave a gap, or do not match
/// dtype x shape, bytes after the last tensor) is a damaged-data error with the file and the problem.
SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_begin, int64_t file_bytes,
                                           const std::filesystem::path& file);

/// Reads one safetensors file. Const and thread-safe.
class SafetensorsReader {
 public:
  /// Reads and validates the header. With `checksums` (of the whole file, including the header) every read is verified.
  explicit SafetensorsReader(std::filesystem::path path, std::optional<ChunkChecksums> checksums = std::nullopt);

  const std::filesystem::path& path() const { return path_; }
  int64_t file_bytes() const { return checked_ ? checked_->size_bytes() : plain_->size_bytes(); }  ///< when opened
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }

  const TensorEntry* find(std::string_view name) const;  ///< null if absent
  const TensorEntry& at(std::string_view name) const;    ///< throws a damaged error naming file and tensor

  /// Fills `out`, which must have exactly the tensor's size. Reads file, writes out.
  void read(const TensorEntry& tensor, std::span<std::byte> out) const;
  /// Reads the bytes [begin_byte, begin_byte + out.size()) of the tensor, e.g. a slice of rows of a large table.
  void read_range(const TensorEntry& tensor, int64_t begin_byte, std::span<std::byte> out) const;

 private:
  void read_file(int64_t offset, std::span<std::byte> out) const;

  std::filesystem::path path_;
  std::optional<CheckedFile> checked_;
  std::optional<InputFile> plain_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, size_t> index_;
};

/// Writes one safetensors file as a stream. All tensors are declared first; then their bytes follow in that order. The
/// file gets its name in finish(). Its space is reserved at the start.
class SafetensorsWriter {
 public:
  /// Throws an input error for a duplicate or empty name, Bug for a negative extent, system_error for the file.
  /// Large files are written past the page cache.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors, const Metadata& metadata = {});

  /// Writes the next bytes of the current tensor, which must be `name` (Bug otherwise). A tensor may be written in any
  /// number of pieces.
  void write(std::string_view name, std::span<const std::byte> bytes);

  /// Makes the file durable and returns its checksums. Throws Bug if tensors are missing.
  ChunkChecksums finish();

  const std::vector<TensorEntry>& tensors() const { return tensors_; }

 private:
  void put(std::span<const std::byte> bytes);
  void skip_finished();

  std::vector<TensorEntry> tensors_;
  AtomicFile file_;
  ChunkHasher hasher_;
  size_t current_ = 0;
  int64_t position_ = 0;  // in the file
};

}  // namespace ashlar::io
