#pragma once

#include <optional>
#include <string>

#include "data/digest.h"
#include "data/shards/hdf5_handle.h"

namespace ashlar::data {

/// Identity of a shard, in attributes of its root group: which part of which dataset it is, independent of its file
/// name.
struct ShardIdentity {
  std::string part;   ///< "train", "validation"
  int64_t index = 0;  ///< among the shards of its part
  Digest digest;      ///< digest of its tokens, see chunk_digest

  bool operator==(const ShardIdentity&) const = default;
  std::string text() const;  ///< "train shard 3 with token digest ..."
};

/// False on an HDF5 error.
bool write_identity(const Hdf5Handle& file, const ShardIdentity& identity);

/// Returns nothing if the file has no complete identity: a shard in the old format, or a damaged file.
std::optional<ShardIdentity> read_identity(const Hdf5Handle& file);

}  // namespace ashlar::data
