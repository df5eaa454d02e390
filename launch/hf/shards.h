#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/safetensors.h"

namespace ashlar::hf {

/// Bytes of tensors in one file of an export, where nobody says otherwise: what transformers 4 takes.
inline constexpr int64_t kDefaultShardBytes = 5'000'000'000;

inline constexpr std::string_view kConfigFile = "config.json";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

/// Which tensors, by their place in `tensor_bytes`, each file holds; every one in exactly one file. As transformers
/// cuts a model: in the order given, a file ends where the next tensor would take it beyond max_bytes; a tensor larger
/// than that has a file to itself, and the file begun before it continues behind it. Files stand in the order in which
/// they are full. max_bytes 0: one file.
std::vector<std::vector<size_t>> cut_shards(std::span<const int64_t> tensor_bytes, int64_t max_bytes);

/// Which files each rank writes, in turn: the largest first, each to the rank that has the fewest bytes, the lowest of
/// those. The same on all ranks; no rank has more than the average and one file.
std::vector<std::vector<size_t>> share_shards(std::span<const int64_t> shard_bytes, int ranks);

/// "model-00001-of-00003.safetensors", counted from 0 here; "model.safetensors" when there is one.
std::string shard_file(size_t shard, size_t count);

/// Whether a file of that name would be taken for part of a model that an export writes, whatever the number of files.
bool is_model_file(std::string_view name);

/// The text of model.safetensors.index.json: `metadata.total_size`, the bytes of all tensors, and `weight_map`, the
/// file of each tensor. Same keys, order and form as transformers writes.
std::string index_text(std::span<const io::TensorSpec> tensors, const std::vector<std::vector<size_t>>& shards);

}  // namespace ashlar::hf
