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
  /// Reads the journal in `directory` if there is one. Throws an input error when the file is not a journal of this
  /// version.
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

  /// True if the file name `file` belongs to the build: an auxiliary file, or a shard announced with name_shards,
  /// finished or not. False if there is no journal.
  bool names(const std::string& file) const;
  /// Records that the build will create shards 0 to count - 1 of a part. Called before the first shard is created. The
  /// record is durable on return.
  void name_shards(Part part, int64_t count);
  int64_t named_shards(Part part) const { return named_[static_cast<int>(part)]; }

  /// Returns the entries whose file exists and has the recorded size and checksum. Other shards are built again.
  std::vector<Entry> finished_shards() const;
  /// Records a finished shard. On return this record and all block digests recorded before it are durable.
  void add(const Entry& entry);

  /// Records the digest of the text in block `block` of the plan.
  void note_block(int64_t block, const Digest& digest);
  const Digest* block(int64_t block) const;  ///< digest recorded by an earlier process; null if there is none

 private:
  void append(const std::vector<std::string>& lines);
  void believe(const std::string& line);

  std::string directory_, path_;
  bool exists_ = false;
  bool whole_ = false;  ///< true if the header line is complete; a killed process may leave a part of it
  int64_t named_[2] = {0, 0};
  std::vector<Entry> entries_;
  std::map<int64_t, Digest> blocks_;
  std::vector<std::string> unwritten_;  ///< lines of note_block that are not yet in the file
};

std::string shard_file(Part part, int64_t shard);  ///< returns a file name such as "train-00000.h5"

struct ShardName {
  Part part;
  int64_t shard;
};
/// Parses a name that shard_file returns. Returns nothing for any other name.
std::optional<ShardName> shard_named(std::string_view file);

}  // namespace ashlar::data
