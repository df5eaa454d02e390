#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/build/build_journal.h"
#include "data/build/build_plan.h"
#include "data/shards/hdf5_shard.h"

namespace ashlar::data {

/// Writes the shards of one dataset part (train or validation) from its token stream, in order. Shards that an earlier
/// run has finished are skipped. When a shard is full, a second thread computes its checksum, makes it durable and
/// renames it to its final name. The journal records the shard when the next shard is full, or in `finish`.
class PartWriter {
 public:
  struct Args {
    std::string directory;
    Part part;
    const BuildPlan& plan;
    bool wide;
    BuildJournal& journal;
  };
  explicit PartWriter(const Args& args);

  /// Marks a shard that an earlier run has finished. Called before the first `feed`.
  void mark_done(int64_t shard, const ShardInfo& info);
  int64_t tokens_missing() const;
  /// True if any of the tokens [begin, end) belongs to a shard that was not marked as done before the first `feed`. The
  /// result does not change while shards are written, so the call is thread-safe.
  bool needs(int64_t begin, int64_t end) const;

  /// Takes the tokens [position, position + tokens.size()) of the part. `starts` are the positions where documents
  /// begin, counted from `position`.
  void feed(int64_t position, std::span<const int32_t> tokens, std::span<const int64_t> starts);
  /// Returns the entries of all shards for the manifest. Called after all tokens were passed to `feed`.
  std::vector<ShardInfo> finish();

 private:
  int64_t shard_end(int64_t shard) const;
  void close_shard(int64_t shard);
  void wait_for_publishing();

  Args args_;
  int64_t total_;
  std::vector<ShardInfo> shards_;  ///< `file` of an entry is empty until the shard is finished
  std::vector<bool> kept_;         ///< true for a shard that an earlier run has finished
  std::unique_ptr<ShardWriter> writer_;
  std::future<ShardInfo> publishing_;
  int64_t publishing_shard_ = -1;
};

}  // namespace ashlar::data
