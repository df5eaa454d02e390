#include "data/read/token_dataset.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "data/shards/hdf5_shard.h"

namespace ashlar::data {
namespace {

constexpr size_t kMaxOpenShards = 16;

std::string path_of(const std::string& directory, const std::string& file) {
  return (std::filesystem::path(directory) / file).string();
}

}  // namespace

TokenDataset::TokenDataset(const std::string& directory) : TokenDataset(directory, read_manifest_text(directory)) {}

TokenDataset::TokenDataset(const std::string& directory, const std::string& manifest_text)
    : TokenDataset(directory, std::make_shared<const Manifest>(parse_manifest(manifest_text, directory))) {}

TokenDataset::TokenDataset(std::string directory, std::shared_ptr<const Manifest> manifest)
    : directory_(std::move(directory)),
      manifest_(std::move(manifest)),
      tokenizer_(tokenizer_from_json(manifest_->tokenizer_json)) {
  for (const Part part : kParts) {
    std::vector<int64_t>& first = first_chunk_[static_cast<int>(part)];
    first.push_back(0);
    for (const ShardInfo& info : manifest_->part(part).shards)
      first.push_back(first.back() + (info.tokens + kChunkTokens - 1) / kChunkTokens);
  }
}

std::vector<std::string> TokenDataset::warnings() const {
  if (!manifest_->old_form()) return {};
  return {str_cat(directory_,
                  " is a dataset in the old format, without digests: a shard of another dataset with the same size ",
                  "would not be detected; build it again to add digests")};
}

std::unique_ptr<TokenDataset> TokenDataset::reopened() const {
  return std::unique_ptr<TokenDataset>(new TokenDataset(directory_, manifest_));
}

int64_t TokenDataset::num_shards() const {
  return static_cast<int64_t>(manifest_->part(Part::kTrain).shards.size() +
                              manifest_->part(Part::kValidation).shards.size());
}

void TokenDataset::check_shard(int64_t shard) const {
  const auto train = static_cast<int64_t>(manifest_->part(Part::kTrain).shards.size());
  ASHLAR_CHECK(shard >= 0 && shard < num_shards(), "shard ", shard, " of ", num_shards());
  make_reader(shard < train ? Part::kTrain : Part::kValidation, shard < train ? shard : shard - train);
}

std::unique_ptr<ShardReader> TokenDataset::make_reader(Part part, int64_t shard) const {
  const ShardInfo& info = manifest_->part(part).shards[static_cast<size_t>(shard)];
  return std::make_unique<ShardReader>(
      ShardReader::Args{.path = path_of(directory_, info.file), .manifest = *manifest_, .part = part, .index = shard});
}

TokenDataset::~TokenDataset() = default;

ShardReader& TokenDataset::open_shard(Part part, int64_t shard) {
  const auto same = [&](const OpenShard& o) { return o.part == part && o.shard == shard; };
  const auto found = std::find_if(open_.begin(), open_.end(), same);
  if (found != open_.end()) {
    std::rotate(found, found + 1, open_.end());
    return *open_.back().reader;
  }
  if (open_.size() >= kMaxOpenShards) open_.erase(open_.begin());
  open_.push_back({part, shard, make_reader(part, shard)});
  return *open_.back().reader;
}

std::span<const int32_t> TokenDataset::read_chunk(Part part, int64_t chunk) {
  if (cached_part_ == part && cached_chunk_ == chunk) return chunk_tokens_;
  ASHLAR_CHECK(chunk >= 0 && chunk < num_chunks(part), "chunk ", chunk, " of ", num_chunks(part));
  cached_chunk_ = -1;
  const std::vector<int64_t>& first = first_chunk_[static_cast<int>(part)];
  const int64_t shard = std::upper_bound(first.begin(), first.end(), chunk) - first.begin() - 1;
  const int64_t local = chunk - first[shard];
  open_shard(part, shard).read_tokens(local, raw_);
  chunk_tokens_.resize(raw_.size() / (manifest_->wide ? 4 : 2));
  uint32_t largest = 0;
  const auto widen = [&]<typename Id>(Id) {
    for (size_t i = 0; i < chunk_tokens_.size(); ++i) {
      Id id;
      std::memcpy(&id, raw_.data() + i * sizeof(Id), sizeof(Id));
      largest = std::max<uint32_t>(largest, id);
      chunk_tokens_[i] = static_cast<int32_t>(id);
    }
  };
  if (manifest_->wide) {
    widen(uint32_t{});
  } else {
    widen(uint16_t{});
  }
  if (largest >= static_cast<uint32_t>(manifest_->vocab_size)) {
    throw damaged_error("data", path_of(directory_, manifest_->part(part).shards[shard].file),
                        ": dataset tokens, chunk ", local, ": id ", largest, " is outside the vocabulary of ",
                        manifest_->vocab_size, "; restore the file or build the dataset again");
  }
  cached_part_ = part;
  cached_chunk_ = chunk;
  return chunk_tokens_;
}

void TokenDataset::read(Part part, int64_t first, std::span<int32_t> out) {
  ASHLAR_CHECK(first >= 0 && first + static_cast<int64_t>(out.size()) <= tokens(part), "tokens [", first, ", +",
               out.size(), ") of ", tokens(part));
  while (!out.empty()) {
    const int64_t offset = first % kChunkTokens;
    const std::span<const int32_t> chunk = read_chunk(part, first / kChunkTokens).subspan(static_cast<size_t>(offset));
    const size_t n = std::min(out.size(), chunk.size());
    std::copy_n(chunk.begin(), n, out.begin());
    out = out.subspan(n);
    first += static_cast<int64_t>(n);
  }
}

int64_t TokenDataset::scratch_bytes() const {
  return static_cast<int64_t>(raw_.capacity() + chunk_tokens_.capacity() * sizeof(int32_t));
}

}  // namespace ashlar::data
