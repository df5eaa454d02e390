#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/io/safetensors.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::checkpoint {

/// A block of a tensor that was read, with its dtype in the file and in memory.
struct LoadedBlock {
  std::string_view tensor;  ///< global name
  Block block;              ///< position in the matrix view of the tensor
  io::FileDType stored_as = io::FileDType::kF32, loaded_as = io::FileDType::kF32;
  std::span<const std::byte> stored, loaded;
};

/// Detects NaN and infinity in loaded values, which would silently make every loss and token wrong. `look` only records
/// such values, and throw_if_met reports them after all files are read. So if a file is damaged, the damage is reported
/// instead.
class FiniteCheck {
 public:
  void look(const LoadedBlock& block);

  /// Called by all ranks after loading. Throws an error with exit code 4 on all ranks when some rank has found a
  /// non-finite value. The error names the first tensor (by global name) with such a value, its first non-finite
  /// element in row-major order, and the number of such tensors if there are several. The text does not depend on the
  /// mesh.
  void throw_if_met(comm::ControlPlane& ranks, const std::filesystem::path& checkpoint) const;

 private:
  // Key: tensor name. Value: text of the first non-finite element.
  std::map<std::string, std::string, std::less<>> met_;
};

}  // namespace ashlar::checkpoint
