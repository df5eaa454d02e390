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

/// Writes the shards of one part from its token stream, in order. Shards that an earlier run has finished are skipped.
/// A full shard is closed, made durable, renamed and recorded in the journal by a second thread.
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

  /// Marks a shard that exists. Called before the first `feed`.
  void mark_done(int64_t shard, const ShardInfo& info);
  int64_t tokens_missing() const;
  /// True if any of the tokens [begin, end) was missing at the start. The result does not change while shards are
  /// written, so the call is thread-safe.
  bool needs(int64_t begin, int64_t end) const;

  /// Passes the tokens [position, position + tokens.size()) of the part. Documents begin at `starts`, counted from
  /// `position`.
  void feed(int64_t position, std::span<const int32_t> tokens, std::span<const int64_t> starts);
  /// Returns all shards. Called after all tokens were passed.
  std::vector<ShardInfo> finish();

 private:
  int64_t shard_end(int64_t shard) const;
  void close_shard(int64_t shard);
  void wait_for_publishing();

  Args args_;
  int64_t total_;
  std::vector<ShardInfo> shards_;  ///< file is empty until done
  std::vector<bool> kept_;         ///< finished by an earlier run
  std::unique_ptr<ShardWriter> writer_;
  std::future<ShardInfo> publishing_;
  int64_t publishing_shard_ = -1;
};

}  // namespace ashlar::data
