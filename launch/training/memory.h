#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"

namespace ashlar::training {

int64_t resident_bytes();       ///< resident memory of this process now (VmRSS)
int64_t peak_resident_bytes();  ///< the most so far (VmHWM)

/// Reads peak_resident_bytes() (VmHWM) from a /proc file that stays open, so that it is cheap to call at every step.
class PeakMemory {
 public:
  PeakMemory();
  ~PeakMemory();
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;

  int64_t bytes() const;

 private:
  int file_;
};

/// The parts of a run's memory. On the host they are the program (its data before the first allocation, and the
/// resident code of the program and its libraries), each arena of the backend at its high-water mark, and parts that
/// the caller adds. On CPU their sum equals VmHWM, except for stacks, small objects and memory that is never written.
/// On a device with its own memory (DeviceFacts) they are the allocators, the parts that the caller adds, and the
/// memory that others use.
class MemoryLedger {
 public:
  MemoryLedger();  ///< reads the size of the program's own data: construct before large allocations
  void add(std::string name, int64_t bytes) { extra_.emplace_back(std::move(name), bytes); }

  std::vector<std::pair<std::string, int64_t>> parts(Backend& backend) const;
  /// One line: the peak of the process and its parts, including the unnamed rest, so that they add up.
  std::string report(Backend& backend) const;

  /// Counts as `name`, e.g. a library, the device memory that was used since the last call (or ever) according to the
  /// driver, but not by the backend's allocators. No effect if the device shares the host's memory.
  void add_of_device(std::string name, Backend& backend);
  /// The bytes of device memory in the added parts and in the allocators. Does not call the driver.
  int64_t device_bytes(Backend& backend) const;
  /// One line: the used device memory according to the driver and its parts, so that they add up. Empty if the device
  /// shares the host's memory.
  std::string device_report(Backend& backend) const;

 private:
  std::vector<std::pair<std::string, int64_t>> device_parts(Backend& backend) const;

  int64_t private_bytes_;
  std::vector<std::pair<std::string, int64_t>> extra_, of_device_;
};

/// "1.23 GB", "45.6 MB", "789 KB" (powers of ten).
std::string human_bytes(int64_t bytes);

}  // namespace ashlar::training
