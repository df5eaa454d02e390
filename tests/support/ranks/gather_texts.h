#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/control_plane.h"

namespace ashlar::testing {

/// A text of each rank, of any lengths, on all ranks.
inline std::vector<std::string> gather_texts(comm::ControlPlane& ranks, std::string_view text) {
  std::vector<std::string> texts;
  ranks.gather({.label = "gather_texts", .mine = text, .all = texts}).wait();
  return texts;
}

}  // namespace ashlar::testing
