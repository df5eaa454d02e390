#pragma once

#include <optional>
#include <string>

#include "data/digest.h"
#include "data/shards/hdf5_handle.h"

namespace ashlar::data {

/// What a shard says about itself, in attributes of its root group: which piece of which dataset it is, however its
/// file is called.
struct ShardIdentity {
  std::string part;   ///< "train", "validation"
  int64_t index = 0;  ///< among the shards of its part
  Digest digest;      ///< of its tokens, see chunk_digest

  bool operator==(const ShardIdentity&) const = default;
  std::string text() const;  ///< "train shard 3 with token digest ..."
};

/// False when HDF5 says so.
bool write_identity(const Hdf5Handle& file, const ShardIdentity& identity);

/// Nothing when the file holds none that is whole: a shard of the old form, or damage.
std::optional<ShardIdentity> read_identity(const Hdf5Handle& file);

}  // namespace ashlar::data
