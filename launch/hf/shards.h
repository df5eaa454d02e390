#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/safetensors.h"

namespace ashlar::hf {

/// The default for the bytes of tensors in one file of an export, as in transformers 4.
inline constexpr int64_t kDefaultShardBytes = 5'000'000'000;

inline constexpr std::string_view kConfigFile = "config.json";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

/// The tensors of each file, as indices into `tensor_bytes`; every tensor is in exactly one file. As in transformers,
/// tensors are taken in the given order, and a file ends where the next tensor would make it larger than max_bytes. A
/// tensor larger than max_bytes gets a file of its own; the file begun before it is continued after it. Files are
/// listed in the order in which they are finished. max_bytes 0: one file.
std::vector<std::vector<size_t>> split_into_shards(std::span<const int64_t> tensor_bytes, int64_t max_bytes);

/// The files that each rank writes. Files are assigned in descending order of size, each to the rank with the fewest
/// bytes so far (the lowest of several). The result is the same on all ranks, and no rank has more bytes than the
/// average plus one file.
std::vector<std::vector<size_t>> share_shards(std::span<const int64_t> shard_bytes, int ranks);

/// "model-00001-of-00003.safetensors", counted from 0 here; "model.safetensors" when there is one.
std::string shard_file(size_t shard, size_t count);

/// True if an export of any number of shards could have written a model file of that name.
bool is_model_file(std::string_view name);

/// The text of model.safetensors.index.json: `metadata.total_size`, the bytes of all tensors, and `weight_map`, the
/// file of each tensor. Same keys, order and form as transformers writes.
std::string index_text(std::span<const io::TensorSpec> tensors, const std::vector<std::vector<size_t>>& shards);

}  // namespace ashlar::hf
