#pragma once

#include <cstdint>
#include <string>

#include "parallel/comm/bootstrap.h"

namespace ashlar::training {

/// What the steps of a run send, counted by the communicators and control planes themselves.
class TrafficCount {
 public:
  explicit TrafficCount(comm::Bootstrap& bootstrap);

  /// Called by all ranks: since construction, the most that any of them has sent a step on each plane, the memory that
  /// operands of others have needed, and open descriptors. Empty where there is one rank or there was no step.
  std::string report(int64_t steps) const;

 private:
  comm::Bootstrap& bootstrap_;
  comm::Traffic data_, control_;
};

}  // namespace ashlar::training
