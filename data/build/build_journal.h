#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/shards/manifest.h"

namespace ashlar::data {

/// The file `build.journal` of an unfinished build. It is created before the build's other files. It records which
/// files of the output folder belong to the build, which shards are finished, and the digest of the text in each block
/// of the input. Each entry is a line with a checksum, so that an incomplete line is detected.
class BuildJournal {
 public:
  /// Reads an existing journal. Input error when it is not a journal of this program.
  explicit BuildJournal(const std::string& directory);

  struct Entry {
    Part part;
    int64_t shard;
    ShardInfo info;
  };

  bool exists() const { return exists_; }
  void begin();  ///< creates the journal if there is none; durable on return
  void remove();
  void start_over();  ///< empties the journal

  /// True if a file of that name belongs to the build: an auxiliary file, or a shard of name_shards, finished or not.
  /// False without a journal.
  bool names(const std::string& file) const;
  void name_shards(Part part, int64_t count);  ///< durable on return, before the first shard is created
  int64_t named_shards(Part part) const { return named_[static_cast<int>(part)]; }

  /// Returns the entries whose file exists and has the recorded size and checksum. Other shards are built again.
  std::vector<Entry> finished_shards() const;
  /// Adds a finished shard. On return, it and all digests recorded before are durable.
  void add(const Entry& entry);

  /// Records the digest of the text in block `block` of the plan.
  void note_block(int64_t block, const Digest& digest);
  const Digest* block(int64_t block) const;  ///< recorded by an earlier process; null if none

 private:
  void append(const std::vector<std::string>& lines);
  void believe(const std::string& line);

  std::string directory_, path_;
  bool exists_ = false;
  bool whole_ = false;  ///< the first line is complete; a kill may leave none or a part of it
  int64_t named_[2] = {0, 0};
  std::vector<Entry> entries_;
  std::map<int64_t, Digest> blocks_;
  std::vector<std::string> unwritten_;  ///< lines from note_block
};

std::string shard_file(Part part, int64_t shard);  ///< "train-00000.h5"

struct ShardName {
  Part part;
  int64_t shard;
};
/// Parses a name made by shard_file; nothing for any other text.
std::optional<ShardName> shard_named(std::string_view file);

}  // namespace ashlar::data
