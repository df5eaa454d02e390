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

/// The element types of the safetensors format. Ashlar does not compute with all of them, but it can list and copy
/// files with any of them.
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

int64_t size_of(FileDType dtype);           ///< size of one element in bytes
std::string_view name_of(FileDType dtype);  ///< returns "F32", "BF16", ...
std::optional<FileDType> file_dtype_from_name(std::string_view name);
FileDType to_file_dtype(DType dtype);
std::optional<DType> to_dtype(FileDType dtype);  ///< nullopt for types with which Ashlar does not compute

/// A tensor as a file declares it. Its data is row-major and little-endian.
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

/// The parsed header of a safetensors file. Layout of the file: header length (8 bytes, little-endian), JSON header,
/// data (https://github.com/huggingface/safetensors#format).
struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< ordered by their position in the file
  Metadata metadata;
};

/// Validates and parses the JSON text of a header. `data_begin` is the offset of the data in the file, `file_bytes` the
/// size of the file, and `file` its path for messages. Any deviation from the format throws a damaged-data error that
/// names the file and the problem: wrong types, duplicate names, offsets that overlap, leave a gap or do not match
/// dtype and shape, bytes after the last tensor.
SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_begin, int64_t file_bytes,
                                           const std::filesystem::path& file);

/// Reads one safetensors file. All methods are const and thread-safe.
class SafetensorsReader {
 public:
  /// Reads and validates the header. With `checksums` (of the whole file, including the header) every read is verified.
  explicit SafetensorsReader(std::filesystem::path path, std::optional<ChunkChecksums> checksums = std::nullopt);

  const std::filesystem::path& path() const { return path_; }
  /// Returns the size of the file when it was opened.
  int64_t file_bytes() const { return checked_ ? checked_->size_bytes() : plain_->size_bytes(); }
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }

  const TensorEntry* find(std::string_view name) const;  ///< null if absent
  const TensorEntry& at(std::string_view name) const;    ///< throws a damaged-data error if absent

  /// Reads the whole tensor into `out`, which must have exactly the tensor's size.
  void read(const TensorEntry& tensor, std::span<std::byte> out) const;
  /// Reads the bytes [begin_byte, begin_byte + out.size()) of the tensor into `out`, e.g. some rows of a large table.
  void read_range(const TensorEntry& tensor, int64_t begin_byte, std::span<std::byte> out) const;

 private:
  void read_file(int64_t offset, std::span<std::byte> out) const;

  std::filesystem::path path_;
  std::optional<CheckedFile> checked_;
  std::optional<InputFile> plain_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, size_t> index_;
};

/// Writes one safetensors file as a stream. The constructor declares all tensors and reserves disk space; then `write`
/// gets their bytes in the declared order; finish() gives the file its name.
class SafetensorsWriter {
 public:
  /// Throws an input error for a duplicate, empty or reserved tensor name, a Bug for a negative dimension, and a
  /// system_error if the file cannot be created. Large files bypass the page cache.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors, const Metadata& metadata = {});

  /// Writes the next bytes of the current tensor. Throws a Bug unless the current tensor is `name`. A tensor may be
  /// written in any number of pieces.
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
  int64_t position_ = 0;  // offset in the file
};

}  // namespace ashlar::io
