#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/safetensors.h"

namespace ashlar::hf {

/// Default limit of the tensor bytes in one file of an export, as in transformers 4.
inline constexpr int64_t kDefaultShardBytes = 5'000'000'000;

inline constexpr std::string_view kConfigFile = "config.json";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

/// Returns for each file the indices of its tensors in `tensor_bytes`; every tensor is in exactly one file. As in
/// transformers, tensors are taken in the given order, and a file ends where the next tensor would make it larger than
/// max_bytes. A tensor larger than max_bytes gets a file of its own; the file begun before that tensor is continued
/// after it. Files are listed in the order in which they are finished. With max_bytes = 0 there is one file.
std::vector<std::vector<size_t>> split_into_shards(std::span<const int64_t> tensor_bytes, int64_t max_bytes);

/// Returns for each rank the indices of the files that it writes. Files are assigned in descending order of size, each
/// to the rank with the fewest bytes so far (on a tie, to the lowest rank). The result is the same on all ranks, and no
/// rank has more bytes than the average plus the largest file.
std::vector<std::vector<size_t>> share_shards(std::span<const int64_t> shard_bytes, int ranks);

/// Returns the file name of a shard: "model-00001-of-00003.safetensors" for shard 0 of 3, "model.safetensors" if count
/// is 1.
std::string shard_file(size_t shard, size_t count);

/// True for config.json, the index, and the weight files of an export with any number of shards.
bool is_model_file(std::string_view name);

/// The text of model.safetensors.index.json: `metadata`, the numbers of parameters and bytes of all tensors, and
/// `weight_map`, the file of each tensor. It has the same keys, order and layout as transformers' file.
std::string index_text(std::span<const io::TensorSpec> tensors, const std::vector<std::vector<size_t>>& shards);

}  // namespace ashlar::hf
