#include "launch/plan/communication.h"

#include <algorithm>

#include "core/base/error.h"

namespace ashlar::plan {

int64_t Collectives::here(const Group& group) const {
  return std::clamp<int64_t>(device_.ranks_per_node / group.stride, 1, group.ranks);
}

Link Collectives::within_machine() const {
  if (device_.intra.bandwidth <= 0)
    throw input_error("device", device_.name, ": expected [intra], the link between two ranks of a machine, got none; ",
                      "measure with several ranks: ashlar launch -np 2 bench device");
  return device_.intra;
}

Link Collectives::between_machines() const {
  if (device_.inter.bandwidth <= 0)
    throw input_error("device", device_.name, ": expected [inter], the link between machines of ",
                      device_.ranks_per_node,
                      " ranks, got none; add its bandwidth and latency, or plan for fewer ranks");
  return {.bandwidth = device_.inter.bandwidth * inter_share_, .latency = device_.inter.latency};
}

Link Collectives::ring(const Group& group) const {
  const int64_t local = here(group);
  if (local == group.ranks) return within_machine();
  Link link = between_machines();
  link.bandwidth *= static_cast<double>(local);
  if (local > 1) link.bandwidth = std::min(link.bandwidth, within_machine().bandwidth);
  return link;
}

double Collectives::reduce_scatter(double bytes, const Group& group) const {
  if (group.ranks == 1) return 0;
  const auto n = static_cast<double>(group.ranks);
  const int64_t local = here(group);
  const double machines = n / static_cast<double>(local);
  const double latency = device_.intra.latency * static_cast<double>(local - 1) +
                         (machines > 1 ? between_machines().latency * (machines - 1) : 0);
  return latency + bytes * (n - 1) / n / ring(group).bandwidth;
}

double Collectives::all_reduce(double bytes, const Group& group) const { return 2 * reduce_scatter(bytes, group); }

double Collectives::all_to_all(double bytes, const Group& group) const {
  if (group.ranks == 1) return 0;
  const int64_t local = here(group);
  const auto others = static_cast<double>(group.ranks - 1), near = static_cast<double>(local - 1);
  double seconds = near > 0 ? within_machine().seconds(bytes * near / others) : 0;
  if (local < group.ranks) seconds = std::max(seconds, between_machines().seconds(bytes * (others - near) / others));
  return seconds;
}

double Collectives::send(double bytes, int64_t distance) const {
  return (distance >= device_.ranks_per_node ? between_machines() : within_machine()).seconds(bytes);
}

}  // namespace ashlar::plan
