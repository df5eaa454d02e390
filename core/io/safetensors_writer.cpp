#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/io/safetensors.h"

namespace ashlar::io {
namespace {

constexpr int64_t kLarge = int64_t{8} << 20;
/// Alignment, in bytes, of the start of the data in the file. With 8, a memory-mapped file can be read as any dtype.
/// Large files are written with direct I/O. Their data is aligned to 4096, so that memory with this alignment is
/// written without a copy.
constexpr size_t kAlignment = 8, kAlignmentOfLarge = 4096;

/// Returns the JSON header, padded with spaces so that the data is aligned. The offsets in `entries` are relative to
/// the start of the data.
std::string header_json(const std::vector<TensorEntry>& entries, const Metadata& metadata, size_t alignment) {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  if (!metadata.empty()) root["__metadata__"] = metadata;
  for (const TensorEntry& entry : entries) {
    nlohmann::ordered_json& value = root[entry.name];
    value["dtype"] = name_of(entry.dtype);
    value["shape"] = entry.shape;
    value["data_offsets"] = {entry.begin, entry.end};
  }
  std::string text = root.dump();
  const size_t begin = sizeof(uint64_t) + text.size();
  text.append((alignment - begin % alignment) % alignment, ' ');
  return text;
}

std::vector<TensorEntry> place(std::vector<TensorSpec> specs) {
  std::vector<TensorEntry> entries;
  std::set<std::string_view> names;
  int64_t position = 0;
  for (const TensorSpec& spec : specs) {
    const char* wrong = nullptr;
    if (spec.name.empty())
      wrong = ": expected a name, got an empty one; name the tensor";
    else if (spec.name == "__metadata__")
      wrong = ": expected a name that safetensors does not reserve; rename the tensor";
    else if (!names.insert(spec.name).second)
      wrong = ": expected each name once, got it twice; rename one of the two tensors";
    if (wrong != nullptr) throw input_error("safetensors", "tensor name ", printable(spec.name), wrong);
    for (const int64_t extent : spec.shape) ASHLAR_CHECK(extent >= 0, spec.name, " has extent ", extent);
    TensorEntry entry;
    static_cast<TensorSpec&>(entry) = spec;
    entry.begin = position;
    position += spec.num_bytes();
    entry.end = position;
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                                     const Metadata& metadata)
    : tensors_(place(std::move(tensors))), file_(path) {
  const int64_t data_bytes = tensors_.empty() ? 0 : tensors_.back().end;
  const bool large = data_bytes >= kLarge;
  const std::string json = header_json(tensors_, metadata, large ? kAlignmentOfLarge : kAlignment);
  std::array<std::byte, 8> prefix{};
  for (size_t i = 0; i < prefix.size(); ++i) prefix[i] = static_cast<std::byte>((json.size() >> (8 * i)) & 0xff);
  const auto data_begin = static_cast<int64_t>(prefix.size() + json.size());
  for (TensorEntry& entry : tensors_) {
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  file_.reserve(data_begin + data_bytes);
  if (large) file_.bypass_cache();
  put(prefix);
  put(std::as_bytes(std::span(json)));
  skip_finished();
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;  // e.g. for a tensor without elements, which skip_finished() skips
  ASHLAR_CHECK(current_ < tensors_.size(), "write of ", name, " after the last declared tensor");
  const TensorEntry& entry = tensors_[current_];
  ASHLAR_CHECK(entry.name == name, "expected bytes of ", entry.name, ", got ", name);
  ASHLAR_CHECK(static_cast<int64_t>(bytes.size()) <= entry.end - position_, name, " has ", entry.end - position_,
               " bytes left, got ", bytes.size());
  put(bytes);
  skip_finished();
}

ChunkChecksums SafetensorsWriter::finish() {
  ASHLAR_CHECK(current_ == tensors_.size(), "finish before ", tensors_[current_].name, " was written");
  file_.commit();
  return hasher_.finish();
}

void SafetensorsWriter::put(std::span<const std::byte> bytes) {
  // The checksum of each part is computed just before the part is written, so that the part is read from memory only
  // once. Parts end at aligned addresses, so that direct I/O can write whole blocks.
  constexpr size_t kPart = size_t{4} << 20;
  while (!bytes.empty()) {
    const size_t beyond = reinterpret_cast<uintptr_t>(bytes.data()) % kAlignmentOfLarge;
    const auto part = bytes.first(std::min(kPart - beyond, bytes.size()));
    hasher_.update(part);
    file_.write(part);
    position_ += static_cast<int64_t>(part.size());
    bytes = bytes.subspan(part.size());
  }
}

void SafetensorsWriter::skip_finished() {
  while (current_ < tensors_.size() && position_ == tensors_[current_].end) ++current_;
}

}  // namespace ashlar::io
