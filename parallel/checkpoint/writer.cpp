#include "parallel/checkpoint/writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/error.h"

namespace ashlar::checkpoint {
namespace {

Block whole_block(const io::TensorSpec& spec) {
  TensorRecord record;
  record.shape = spec.shape;
  return {.rows = record.matrix_rows(), .cols = record.matrix_cols()};
}

/// Returns the manifest's record of a tensor. Adds the record if the manifest has none.
TensorRecord& record_of(Manifest& manifest, const io::TensorSpec& spec, Group group) {
  auto& tensors = manifest.tensors;
  auto at = std::lower_bound(tensors.begin(), tensors.end(), spec.name,
                             [](const TensorRecord& t, const std::string& name) { return t.name < name; });
  if (at == tensors.end() || at->name != spec.name) {
    TensorRecord record;
    static_cast<io::TensorSpec&>(record) = spec;
    record.group = group;
    at = tensors.insert(at, std::move(record));
  }
  ASHLAR_CHECK(at->dtype == spec.dtype && at->shape == spec.shape && at->group == group,
               "two files differ in dtype, shape or group of ", spec.name);
  return *at;
}

}  // namespace

StoredBlock whole_tensor(const io::TensorSpec& tensor, Group group) {
  return {.global = tensor, .group = group, .block = whole_block(tensor), .stored_as = tensor.name};
}

io::TensorSpec StoredBlock::stored_spec() const {
  io::TensorSpec spec{.name = stored_as, .dtype = global.dtype, .shape = global.shape};
  if (block == whole_block(global)) return spec;
  spec.shape =
      global.shape.size() <= 1 ? std::vector<int64_t>{block.cols} : std::vector<int64_t>{block.rows, block.cols};
  return spec;
}

std::string file_name(Group group, int64_t rank) {
  return str_cat(name_of(group), absl::StrFormat("-%05d.safetensors", rank));
}

WrittenFile write_blocks(const std::filesystem::path& directory, const std::string& name,
                         std::vector<StoredBlock> blocks, const ProduceBlock& produce) {
  std::vector<io::TensorSpec> specs;
  for (const StoredBlock& block : blocks) specs.push_back(block.stored_spec());
  io::SafetensorsWriter writer(directory / name, std::move(specs), {{"format", "pt"}});
  for (const StoredBlock& block : blocks) {
    produce(block, [&](std::span<const std::byte> bytes) { writer.write(block.stored_as, bytes); });
  }
  return {.record = {.name = name, .checksums = writer.finish()}, .blocks = std::move(blocks)};
}

void add_file(Manifest& manifest, const WrittenFile& file) {
  const auto index = static_cast<int64_t>(manifest.files.size());
  manifest.files.push_back(file.record);
  for (const StoredBlock& stored : file.blocks) {
    record_of(manifest, stored.global, stored.group)
        .slices.push_back({.file = index, .stored_as = stored.stored_as, .block = stored.block});
  }
}

void add_part(Manifest& manifest, const Manifest& part) {
  const auto first = static_cast<int64_t>(manifest.files.size());
  manifest.files.insert(manifest.files.end(), part.files.begin(), part.files.end());
  for (const TensorRecord& tensor : part.tensors) {
    TensorRecord& record = record_of(manifest, tensor, tensor.group);
    for (Slice slice : tensor.slices) {
      slice.file += first;
      record.slices.push_back(std::move(slice));
    }
  }
}

}  // namespace ashlar::checkpoint
