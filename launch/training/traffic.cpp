#include "launch/training/traffic.h"

#include <array>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_format.h"

namespace ashlar::training {

namespace {

int64_t open_descriptors() {
  std::error_code error;
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd", error), {});
}

}  // namespace

TrafficCount::TrafficCount(comm::Bootstrap& bootstrap)
    : bootstrap_(bootstrap),
      data_(bootstrap.world().engine()->data_traffic()),
      control_(bootstrap.world().engine()->control_traffic()) {}

std::string TrafficCount::report(int64_t steps) const {
  if (steps == 0 || bootstrap_.world().size() == 1) return "";
  comm::ProgressEngine& engine = *bootstrap_.world().engine();
  const comm::Traffic data = engine.data_traffic(), control = engine.control_traffic();
  std::array<int64_t, 6> most = {
      data.messages - data_.messages, data.bytes - data_.bytes,  control.messages - control_.messages,
      control.bytes - control_.bytes, bootstrap_.most_staging(), open_descriptors()};
  bootstrap_.control().reduce({.label = "traffic", .int_maxima = most}).wait();
  const auto a_step = [&](int64_t total) { return static_cast<double>(total) / static_cast<double>(steps); };
  return absl::StrFormat(
      "traffic: per step and rank at most %.1f messages with %.0f bytes of tensors and %.1f messages "
      "with %.0f bytes of host values; staging %d bytes, descriptors %d",
      a_step(most[0]), a_step(most[1]), a_step(most[2]), a_step(most[3]), most[4], most[5]);
}

}  // namespace ashlar::training
