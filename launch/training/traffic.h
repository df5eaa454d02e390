#pragma once

#include <cstdint>
#include <string>

#include "parallel/comm/bootstrap.h"

namespace ashlar::training {

/// Communication traffic of the steps of a run, counted by communicators and control planes.
class TrafficCount {
 public:
  explicit TrafficCount(comm::Bootstrap& bootstrap);

  /// Called by all ranks. Returns one line; each number in it is the maximum over the ranks: messages and bytes per
  /// step since construction, for tensors and for host values; peak bytes of the staging memory for operands of other
  /// ranks; number of open descriptors. Empty for one rank or without a step.
  std::string report(int64_t steps) const;

 private:
  comm::Bootstrap& bootstrap_;
  comm::Traffic data_, control_;
};

}  // namespace ashlar::training
