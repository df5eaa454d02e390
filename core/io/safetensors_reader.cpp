#include <algorithm>
#include <array>
#include <utility>

#include "core/io/lfs_pointer.h"
#include "core/io/safetensors.h"

namespace ashlar::io {
namespace {

constexpr int64_t kLengthBytes = 8;
// Maximum header length, as in the reference implementation. A longer header is treated as damage.
constexpr int64_t kMaxHeaderBytes = 100'000'000;

}  // namespace

SafetensorsReader::SafetensorsReader(std::filesystem::path path, std::optional<ChunkChecksums> checksums)
    : path_(std::move(path)) {
  if (checksums) {
    checked_.emplace(path_, std::move(*checksums));
  } else {
    plain_.emplace(path_);
  }
  const int64_t file_bytes = this->file_bytes();
  std::string begin(std::min(static_cast<size_t>(file_bytes), kLfsPointerBytes), '\0');
  if (!checked_) {  // a file with checksums was written by Ashlar, so it is no git-lfs pointer
    read_file(0, std::as_writable_bytes(std::span(begin)));
    if (is_lfs_pointer(begin)) throw lfs_pointer_error("safetensors", path_);
  }
  if (file_bytes < kLengthBytes) {
    throw damaged_error("safetensors", printable(path_.string()), " is not a valid safetensors file: it has ",
                        file_bytes, " bytes, but the header length alone needs 8; download or write it again");
  }
  std::array<std::byte, kLengthBytes> prefix{};
  read_file(0, prefix);
  uint64_t length = 0;
  for (size_t i = prefix.size(); i-- > 0;) length = (length << 8) | std::to_integer<uint64_t>(prefix[i]);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes) || static_cast<int64_t>(length) > file_bytes - kLengthBytes) {
    throw damaged_error("safetensors", printable(path_.string()),
                        " is not a valid safetensors file: the header length ", length, " exceeds the maximum of ",
                        std::min(kMaxHeaderBytes, file_bytes - kLengthBytes), "; download or write it again");
  }
  std::string json(static_cast<size_t>(length), '\0');
  read_file(kLengthBytes, std::as_writable_bytes(std::span(json)));
  header_ = parse_safetensors_header(json, kLengthBytes + static_cast<int64_t>(length), file_bytes, path_);
  for (size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

const TensorEntry* SafetensorsReader::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

const TensorEntry& SafetensorsReader::at(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) {
    throw damaged_error("safetensors", printable(path_.string()), " has no tensor ", printable(name), ", only ",
                        header_.tensors.size(), " others; use a complete file of this model");
  }
  return *entry;
}

void SafetensorsReader::read(const TensorEntry& tensor, std::span<std::byte> out) const {
  ASHLAR_CHECK(static_cast<int64_t>(out.size()) == tensor.end - tensor.begin, tensor.name, " has ",
               tensor.end - tensor.begin, " bytes, the buffer ", out.size());
  read_file(tensor.begin, out);
}

void SafetensorsReader::read_range(const TensorEntry& tensor, int64_t begin_byte, std::span<std::byte> out) const {
  const int64_t size = tensor.end - tensor.begin;
  const auto count = static_cast<int64_t>(out.size());
  ASHLAR_CHECK(begin_byte >= 0 && begin_byte <= size && count <= size - begin_byte, tensor.name, " has ", size,
               " bytes, asked for ", count, " at ", begin_byte);
  read_file(tensor.begin + begin_byte, out);
}

void SafetensorsReader::read_file(int64_t offset, std::span<std::byte> out) const {
  if (checked_) {
    checked_->read_at(offset, out);
  } else {
    plain_->read_at(offset, out);
  }
}

}  // namespace ashlar::io
