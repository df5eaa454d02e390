#pragma once

#include <optional>
#include <string>

#include "data/digest.h"
#include "data/shards/hdf5_handle.h"

namespace ashlar::data {

/// Identity of a shard, stored in attributes of the root group of its file. It says which shard of which dataset the
/// file is, independent of the file name.
struct ShardIdentity {
  std::string part;   ///< "train", "validation"
  int64_t index = 0;  ///< index of the shard in its part
  Digest digest;      ///< digest of the tokens of the shard, see chunk_digest

  bool operator==(const ShardIdentity&) const = default;
  std::string text() const;  ///< "train shard 3 with token digest ..."
};

/// Returns false on an HDF5 error.
bool write_identity(const Hdf5Handle& file, const ShardIdentity& identity);

/// Returns nothing if the file has no complete identity: a shard in the old format, or a damaged file.
std::optional<ShardIdentity> read_identity(const Hdf5Handle& file);

}  // namespace ashlar::data
