#pragma once

#include <cstdint>
#include <string>

#include "parallel/comm/bootstrap.h"

namespace ashlar::training {

/// Traffic of the steps of a run, counted by communicators and control planes.
class TrafficCount {
 public:
  explicit TrafficCount(comm::Bootstrap& bootstrap);

  /// Called by all ranks. Returns, each as the largest value of any rank, the traffic per step of tensors and of host
  /// values since construction, the memory for staging operands of other ranks, and the number of open descriptors.
  /// Empty for one rank or without a step.
  std::string report(int64_t steps) const;

 private:
  comm::Bootstrap& bootstrap_;
  comm::Traffic data_, control_;
};

}  // namespace ashlar::training
