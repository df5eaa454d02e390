#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "parallel/checkpoint/manifest.h"

namespace ashlar::checkpoint {

/// Building blocks of `save` and `write_tensors`. Each rank calls write_blocks in the same partial directory and lists
/// its files with add_file. Rank 0 adds the lists of all ranks to the manifest with add_part and commits the directory.

/// A block of a global tensor as stored in a file.
struct StoredBlock {
  io::TensorSpec global;  ///< name, dtype and shape of the whole tensor
  Group group = Group::kWeights;
  Block block;
  std::string stored_as;  ///< name of the block in the file

  /// Returns name, dtype and shape in the file. The shape is the global shape if the block is the whole tensor, else
  /// [rows, cols], or [cols] for a vector.
  io::TensorSpec stored_spec() const;
};
StoredBlock whole_tensor(const io::TensorSpec& tensor, Group group);

struct WrittenFile {
  FileRecord record;
  std::vector<StoredBlock> blocks;
};

using EmitBytes = std::function<void(std::span<const std::byte>)>;
/// Passes all bytes of a block to `emit`, row-major, in any number of parts.
using ProduceBlock = std::function<void(const StoredBlock& block, const EmitBytes& emit)>;

/// Returns the name of a rank's file, e.g. "weights-00000.safetensors" for rank 0.
std::string file_name(Group group, int64_t rank);

/// Writes the blocks in the given order to DIRECTORY/NAME, durably. Throws the errors of io::AtomicFile.
WrittenFile write_blocks(const std::filesystem::path& directory, const std::string& name,
                         std::vector<StoredBlock> blocks, const ProduceBlock& produce);

/// Adds a file and its blocks to the manifest. Throws Bug when two files differ in the dtype, shape or group
/// (weights or optimizer state) of a tensor.
void add_file(Manifest& manifest, const WrittenFile& file);
/// Adds the files and tensors of `part` to the manifest. Throws Bug in the same case as add_file.
void add_part(Manifest& manifest, const Manifest& part);

}  // namespace ashlar::checkpoint
