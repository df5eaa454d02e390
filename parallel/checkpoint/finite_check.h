#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/io/safetensors.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::checkpoint {

/// What was read of a tensor, and what became of it on the way into memory.
struct LoadedBlock {
  std::string_view tensor;  ///< global name
  Block block;              ///< where it lies, in the matrix view of the tensor
  io::FileDType stored_as = io::FileDType::kF32, loaded_as = io::FileDType::kF32;
  std::span<const std::byte> stored, loaded;
};

/// Looks at what is loaded from a checkpoint: a NaN or an infinity in it would make every loss and every token wrong
/// without a word. Damage is found first: nothing is thrown before all has been read.
class FiniteCheck {
 public:
  void look(const LoadedBlock& block);

  /// Called by all ranks behind the last look: error with exit code 4, on all of them, when some rank has met a value
  /// that is not finite. It names the first such tensor by global name, its first place by rows, and how many tensors
  /// have some; the same whatever the ranks.
  void throw_if_met(comm::ControlPlane& ranks, const std::filesystem::path& checkpoint) const;

 private:
  std::map<std::string, std::string, std::less<>> met_;  // by tensor: the first place, as text
};

}  // namespace ashlar::checkpoint
