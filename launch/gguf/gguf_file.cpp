#include "launch/gguf/gguf_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <system_error>
#include <type_traits>

#include "core/base/bf16.h"
#include "core/base/error.h"
#include "core/base/fp16.h"
#include "core/base/printable.h"
#include "core/io/atomic_file.h"

namespace ashlar::gguf {

namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint32_t kVersion = 3;
constexpr int64_t kAlignment = 32;  // bytes; the format's default
constexpr int64_t kBlock = 32;      // values of a block of q8_0

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// The numbers of the types of metadata, in the order of the alternatives of Value.
constexpr uint32_t kTypes[] = {7, 4, 5, 6, 8, 8, 5, 6};
constexpr uint32_t kArray = 9;
constexpr size_t kFirstArray = 5;

/// Text of the part of the file before the data.
class Header {
 public:
  template <typename Number>
  void number(Number value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void string(std::string_view text) {
    number(static_cast<uint64_t>(text.size()));
    text_ += text;
  }
  void entry(const Entry& e) {
    string(e.key);
    if (e.value.index() >= kFirstArray) number(kArray);
    number(kTypes[e.value.index()]);
    std::visit([this](const auto& value) { put(value); }, e.value);
  }
  const std::string& text() const { return text_; }

 private:
  void put(bool value) { number(static_cast<uint8_t>(value ? 1 : 0)); }
  void put(const std::string& value) { string(value); }
  template <typename T>
  void put(const T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      number(value);
    } else {
      number(static_cast<uint64_t>(value.size()));
      for (const auto& item : value) put(item);
    }
  }
  std::string text_;
};

void encode_block(const float* x, std::byte* out) {
  float largest = 0;
  for (int64_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(x[i]));
  const float scale = largest / 127;
  const float inverse = scale == 0 ? 0 : 1 / scale;
  const FP16 stored(scale);
  std::memcpy(out, &stored, sizeof stored);
  for (int64_t i = 0; i < kBlock; ++i)
    out[sizeof stored + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(x[i] * inverse)));
}

}  // namespace

int64_t row_bytes(TensorType type, int64_t elems) {
  switch (type) {
    case TensorType::kF32: return 4 * elems;
    case TensorType::kBF16: return 2 * elems;
    case TensorType::kQ8_0: break;
  }
  ASHLAR_CHECK(elems % kBlock == 0, elems, " values in blocks of ", kBlock);
  return elems / kBlock * (kBlock + 2);
}

int64_t TensorInfo::num_bytes() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows * row_bytes(type, shape.back());
}

void encode_rows(TensorType type, std::span<const float> values, int64_t cols, std::vector<std::byte>& out) {
  const auto n = static_cast<int64_t>(values.size());
  const size_t begin = out.size();
  out.resize(begin + static_cast<size_t>(n / cols * row_bytes(type, cols)));
  std::byte* to = out.data() + begin;
  if (type == TensorType::kF32) std::memcpy(to, values.data(), values.size_bytes());
  if (type == TensorType::kBF16) {
    for (int64_t i = 0; i < n; ++i) {
      const BF16 value(values[i]);
      std::memcpy(to + 2 * i, &value, 2);
    }
  }
  if (type == TensorType::kQ8_0)
    for (int64_t i = 0; i < n; i += kBlock) encode_block(values.data() + i, to + i / kBlock * (kBlock + 2));
}

void write_file(const std::filesystem::path& path, std::span<const Entry> metadata, std::span<const TensorInfo> tensors,
                const std::function<std::vector<std::byte>(const TensorInfo& tensor)>& data_of) {
  std::error_code none;
  if (std::filesystem::exists(path, none))
    throw input_error("gguf", printable(path.string()), " exists, and an export overwrites nothing; remove it, or ",
                      "choose another folder");
  Header header;
  header.number(std::array{'G', 'G', 'U', 'F'});
  header.number(kVersion);
  header.number(static_cast<uint64_t>(tensors.size()));
  header.number(static_cast<uint64_t>(metadata.size()));
  for (const Entry& e : metadata) header.entry(e);
  int64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    header.string(tensor.name);
    header.number(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) header.number(static_cast<uint64_t>(tensor.shape[i]));
    header.number(static_cast<uint32_t>(tensor.type));
    header.number(static_cast<uint64_t>(offset));
    offset = aligned(offset + tensor.num_bytes());
  }
  const std::string padding(kAlignment, '\0');
  const auto pad = [&](int64_t bytes) { return std::string_view(padding).substr(0, aligned(bytes) - bytes); };
  io::AtomicFile file(path);
  const auto header_bytes = static_cast<int64_t>(header.text().size());
  file.reserve(aligned(header_bytes) + offset);
  file.write(header.text());
  file.write(pad(header_bytes));
  for (const TensorInfo& tensor : tensors) {
    const std::vector<std::byte> data = data_of(tensor);
    ASHLAR_CHECK(std::ssize(data) == tensor.num_bytes(), tensor.name, " has ", data.size(), " bytes");
    file.write(data);
    file.write(pad(std::ssize(data)));
  }
  file.commit();
}

}  // namespace ashlar::gguf
