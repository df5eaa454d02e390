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

/// Writes the shards of one part from its token stream, in order; shards finished by an earlier run are skipped. A full
/// shard is closed, made durable, renamed and recorded in the journal by a second thread.
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

  /// Before the first feed: marks an existing shard.
  void mark_done(int64_t shard, const ShardInfo& info);
  int64_t tokens_missing() const;
  /// True if any of tokens [begin, end) was missing at the start. Constant while shards are written, so thread-safe.
  bool needs(int64_t begin, int64_t end) const;

  /// Tokens [position, position + tokens.size()) of the part; documents begin at `starts`, counted from `position`.
  void feed(int64_t position, std::span<const int32_t> tokens, std::span<const int64_t> starts);
  /// All shards, after every token was fed.
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
