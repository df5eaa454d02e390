#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/shards/manifest.h"

namespace ashlar::data {

/// `build.journal` of an unfinished build, made before any other file of it: which files of the output folder are the
/// build's own, which shards are done, and the digest of the text that each block of the input held. One line each with
/// its checksum, so that a line torn by a kill is not believed.
class BuildJournal {
 public:
  /// Reads what is there. Input error when it is no journal of this program.
  explicit BuildJournal(const std::string& directory);

  struct Entry {
    Part part;
    int64_t shard;
    ShardInfo info;
  };

  bool exists() const { return exists_; }
  void begin();  ///< makes the journal when there is none; durable on return
  void remove();
  void start_over();  ///< a journal that names nothing but itself

  /// Whether a file of that name in the folder is the build's: what it writes beside the shards, and the shards of
  /// name_shards, finished or not. Nothing is when there is no journal.
  bool names(const std::string& file) const;
  void name_shards(Part part, int64_t count);  ///< durable on return, before the first of them is made
  int64_t named_shards(Part part) const { return named_[static_cast<int>(part)]; }

  /// Entries whose file is there with the size and checksum noted. A shard found otherwise is built again.
  std::vector<Entry> finished_shards() const;
  /// Durable on return, with the digests of all blocks noted before.
  void add(const Entry& entry);

  /// The text that block `block` of the plan was found to hold.
  void note_block(int64_t block, const Digest& digest);
  const Digest* block(int64_t block) const;  ///< as noted by an earlier process; null when none was

 private:
  void append(const std::vector<std::string>& lines);
  void believe(const std::string& line);

  std::string directory_, path_;
  bool exists_ = false;
  bool whole_ = false;  ///< the first line is; a kill may leave none, or a piece of it
  int64_t named_[2] = {0, 0};
  std::vector<Entry> entries_;
  std::map<int64_t, Digest> blocks_;
  std::vector<std::string> unwritten_;  ///< lines of note_block
};

std::string shard_file(Part part, int64_t shard);  ///< "train-00000.h5"

struct ShardName {
  Part part;
  int64_t shard;
};
/// What shard_file made that name of; nothing for any other text.
std::optional<ShardName> shard_named(std::string_view file);

}  // namespace ashlar::data
