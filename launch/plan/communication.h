#pragma once

#include <cstdint>

#include "launch/plan/device.h"

namespace ashlar::plan {

/// A group of ranks with equal distances: rank numbers begin, begin + stride, ... A machine has consecutive ranks.
struct Group {
  int64_t ranks = 1, stride = 1;
};

/// Seconds of collectives of `bytes` bytes, the size of the whole vector, over rings of the group's ranks. A ring over
/// several machines crosses between two of them once in each direction, with the links of all its ranks there.
/// `inter_share` is the reached share of Device::inter's bandwidth. Throws an input error if the device file has
/// no figures for a link that is needed.
class Collectives {
 public:
  Collectives(const Device& device, double inter_share) : device_(device), inter_share_(inter_share) {}

  double all_reduce(double bytes, const Group& group) const;
  double reduce_scatter(double bytes, const Group& group) const;  ///< also of an all-gather
  double all_to_all(double bytes, const Group& group) const;      ///< `bytes` that a rank sends to all others together
  double send(double bytes, int64_t distance) const;              ///< to a rank whose number is `distance` away

 private:
  int64_t here(const Group& group) const;  ///< ranks of the group on one machine
  Link within_machine() const;
  Link between_machines() const;
  Link ring(const Group& group) const;

  const Device& device_;
  const double inter_share_;
};

}  // namespace ashlar::plan
