#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/manifest.h"

namespace ashlar::data {

/// Which shards of an unfinished build are done, kept in the output folder: one line a shard, each with its checksum,
/// so that a line torn by a kill is not believed.
class BuildJournal {
 public:
  explicit BuildJournal(const std::string& directory);

  struct Entry {
    Part part;
    int64_t shard;
    ShardInfo info;
  };
  /// Entries whose file is there with the size and checksum noted. A shard found otherwise is built again.
  std::vector<Entry> read() const;
  void add(const Entry& entry);  ///< durable on return
  void remove();

 private:
  std::string directory_, path_;
};

std::string shard_file(Part part, int64_t shard);  ///< "train-00000.h5"

}  // namespace ashlar::data
