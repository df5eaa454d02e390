#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "parallel/checkpoint/manifest.h"

namespace ashlar::checkpoint {

/// Building blocks of `save` and `write_tensors`. Each rank calls write_blocks in one partial directory and lists its
/// files; rank 0 adds all lists to the manifest and commits.

/// A block of a global tensor as stored in a file.
struct StoredBlock {
  io::TensorSpec global;  ///< name, dtype and shape of the whole tensor
  Group group = Group::kWeights;
  Block block;
  std::string stored_as;  ///< its name in the file

  /// The shape in the file: the global shape if complete, else [rows, cols], or [cols] for a vector.
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

/// "weights-00000.safetensors": the number is the rank.
std::string file_name(Group group, int64_t rank);

/// Writes DIRECTORY/NAME durably, its blocks in the given order. Errors as io::AtomicFile.
WrittenFile write_blocks(const std::filesystem::path& directory, const std::string& name,
                         std::vector<StoredBlock> blocks, const ProduceBlock& produce);

/// Lists a file and its blocks. Bug when a tensor's dtype or shape differs from another file's.
void add_file(Manifest& manifest, const WrittenFile& file);
/// Adds the files and tensors of another list. Bug as add_file.
void add_part(Manifest& manifest, const Manifest& part);

}  // namespace ashlar::checkpoint
