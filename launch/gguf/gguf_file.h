#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// The file format GGUF, version 3. Source: https://github.com/ggml-org/ggml, docs/gguf.md.
namespace ashlar::gguf {

/// A value of the metadata.
using Value = std::variant<bool, uint32_t, int32_t, float, std::string, std::vector<std::string>, std::vector<int32_t>,
                           std::vector<float>>;
struct Entry {
  std::string key;
  Value value;
};

/// Types of tensor data, with the numbers of the format.
enum class TensorType : uint32_t { kF32 = 0, kQ8_0 = 8, kBF16 = 30 };

/// Bytes of a row; `elems` must be a multiple of 32 for kQ8_0.
int64_t row_bytes(TensorType type, int64_t elems);

struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;  ///< row-major: the last extent is contiguous
  TensorType type = TensorType::kF32;

  int64_t num_bytes() const;
};

/// Encodes rows of `cols` fp32 values. kBF16 rounds to nearest even. kQ8_0 stores blocks of 32 values as a scale in
/// fp16, the largest magnitude / 127, and 32 integers.
void encode_rows(TensorType type, std::span<const float> values, int64_t cols, std::vector<std::byte>& out);

/// Writes a file that gets its name when it is complete (io::AtomicFile). `data_of` returns the encoded data of a
/// tensor, and is called once for each, in their order. Throws an input error if `path` exists.
void write_file(const std::filesystem::path& path, std::span<const Entry> metadata, std::span<const TensorInfo> tensors,
                const std::function<std::vector<std::byte>(const TensorInfo& tensor)>& data_of);

}  // namespace ashlar::gguf
