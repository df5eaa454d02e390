#include "launch/hf/shards.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/error.h"

namespace ashlar::hf {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";

/// Removes digits from the front of `text`. Returns false if there are none.
bool skip_number(std::string_view& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(digits);
  return digits > 0;
}

bool skip(std::string_view& text, std::string_view start) {
  if (!text.starts_with(start)) return false;
  text.remove_prefix(start.size());
  return true;
}

}  // namespace

std::vector<std::vector<size_t>> split_into_shards(std::span<const int64_t> tensor_bytes, int64_t max_bytes) {
  std::vector<std::vector<size_t>> shards;
  std::vector<size_t> current;
  int64_t current_bytes = 0;
  for (size_t i = 0; i < tensor_bytes.size(); ++i) {
    if (max_bytes > 0 && tensor_bytes[i] > max_bytes) {
      shards.push_back({i});
      continue;
    }
    if (max_bytes > 0 && current_bytes + tensor_bytes[i] > max_bytes) {
      shards.push_back(std::exchange(current, {}));
      current_bytes = 0;
    }
    current.push_back(i);
    current_bytes += tensor_bytes[i];
  }
  if (!current.empty()) shards.push_back(std::move(current));
  return shards;
}

std::vector<std::vector<size_t>> share_shards(std::span<const int64_t> shard_bytes, int ranks) {
  ASHLAR_CHECK(ranks > 0, "expected at least one rank, got ", ranks);
  std::vector<size_t> order(shard_bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return shard_bytes[a] > shard_bytes[b]; });
  std::vector<std::vector<size_t>> shares(static_cast<size_t>(ranks));
  std::vector<int64_t> bytes(shares.size(), 0);
  for (const size_t shard : order) {
    const auto least = static_cast<size_t>(std::ranges::min_element(bytes) - bytes.begin());
    shares[least].push_back(shard);
    bytes[least] += shard_bytes[shard];
  }
  return shares;
}

std::string shard_file(size_t shard, size_t count) {
  if (count == 1) return std::string(kSingleFile);
  return absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1, count);
}

bool is_model_file(std::string_view name) {
  if (name == kConfigFile || name == kSingleFile || name == kIndexFile) return true;
  return skip(name, "model-") && skip_number(name) && skip(name, "-of-") && skip_number(name) && name == ".safetensors";
}

std::string index_text(std::span<const io::TensorSpec> tensors, const std::vector<std::vector<size_t>>& shards) {
  int64_t bytes = 0, parameters = 0;
  for (const io::TensorSpec& tensor : tensors) {
    bytes += tensor.num_bytes();
    parameters += tensor.num_elems();
  }
  nlohmann::json root;  // nlohmann::json sorts the keys, as transformers does
  root["metadata"] = {{"total_parameters", parameters}, {"total_size", bytes}};
  for (size_t s = 0; s < shards.size(); ++s) {
    for (const size_t i : shards[s]) root["weight_map"][tensors[i].name] = shard_file(s, shards.size());
  }
  return root.dump(2) + "\n";
}

}  // namespace ashlar::hf
