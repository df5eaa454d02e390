#include "data/build/part_writer.h"

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "core/io/checksum.h"

namespace ashlar::data {

PartWriter::PartWriter(const Args& args)
    : args_(args),
      total_(args.plan.part_tokens(args.part)),
      shards_(static_cast<size_t>(args.plan.num_shards(args.part))),
      kept_(shards_.size(), false) {}

int64_t PartWriter::shard_end(int64_t shard) const { return std::min(total_, (shard + 1) * args_.plan.shard_tokens); }

void PartWriter::mark_done(int64_t shard, const ShardInfo& info) {
  ASHLAR_CHECK(shard >= 0 && shard < static_cast<int64_t>(shards_.size()), "shard ", shard, " of ", shards_.size());
  shards_[shard] = info;
  kept_[shard] = true;
}

int64_t PartWriter::tokens_missing() const {
  int64_t missing = 0;
  for (size_t s = 0; s < shards_.size(); ++s) {
    const auto shard = static_cast<int64_t>(s);
    if (!kept_[shard]) missing += shard_end(shard) - shard * args_.plan.shard_tokens;
  }
  return missing;
}

bool PartWriter::needs(int64_t begin, int64_t end) const {
  for (int64_t at = begin; at < end; at = shard_end(at / args_.plan.shard_tokens)) {
    if (!kept_[at / args_.plan.shard_tokens]) return true;
  }
  return false;
}

void PartWriter::feed(int64_t position, std::span<const int32_t> tokens, std::span<const int64_t> starts) {
  int64_t at = 0;
  size_t next_start = 0;
  const auto n = static_cast<int64_t>(tokens.size());
  while (at < n) {
    const int64_t shard = (position + at) / args_.plan.shard_tokens;
    const int64_t begin = shard * args_.plan.shard_tokens;
    const int64_t stop = std::min(n, shard_end(shard) - position);
    const bool write = !kept_[shard];
    if (write && writer_ == nullptr) {
      ASHLAR_CHECK(position + at == begin, "shard ", shard, " opened at ", position + at);
      const auto path = io::partial_path(std::filesystem::path(args_.directory) / shard_file(args_.part, shard));
      writer_ = std::make_unique<ShardWriter>(ShardWriter::Args{.path = path.string(),
                                                                .part = args_.part,
                                                                .index = shard,
                                                                .first_chunk = begin / kChunkTokens,
                                                                .tokens = shard_end(shard) - begin,
                                                                .wide = args_.wide});
    }
    if (write) writer_->append(tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(stop - at)));
    for (; next_start < starts.size() && starts[next_start] < stop; ++next_start) {
      if (write) writer_->add_document(position + starts[next_start] - begin);
    }
    at = stop;
    if (write && position + at == shard_end(shard)) close_shard(shard);
  }
}

void PartWriter::close_shard(int64_t shard) {
  wait_for_publishing();
  writer_->finish();
  ShardInfo info;
  info.file = shard_file(args_.part, shard);
  info.tokens = writer_->tokens_written();
  info.documents = writer_->documents_written();
  info.digest = writer_->digest();
  writer_.reset();
  publishing_shard_ = shard;
  publishing_ = std::async(std::launch::async, [directory = std::filesystem::path(args_.directory), info]() mutable {
    const std::filesystem::path path = directory / info.file;
    const io::FileSum sum = io::sum_file(io::partial_path(path));
    info.bytes = sum.bytes;
    info.crc32 = sum.crc32;
    io::publish_partial(path);
    return info;
  });
}

void PartWriter::wait_for_publishing() {
  if (!publishing_.valid()) return;
  const ShardInfo info = publishing_.get();
  args_.journal.add({args_.part, publishing_shard_, info});
  shards_[publishing_shard_] = info;
  publishing_shard_ = -1;
}

std::vector<ShardInfo> PartWriter::finish() {
  wait_for_publishing();
  for (const ShardInfo& info : shards_)
    ASHLAR_CHECK(!info.file.empty(), "a shard of ", name_of(args_.part), " is missing");
  return shards_;
}

}  // namespace ashlar::data
