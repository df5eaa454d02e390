#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"

namespace ashlar::training {

int64_t resident_bytes();       ///< resident memory of this process now (VmRSS)
int64_t peak_resident_bytes();  ///< peak resident memory so far (VmHWM)

/// Reads peak_resident_bytes() (VmHWM) from a /proc file that stays open, so that a call at every step is cheap.
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

/// Divides the memory of a run into named parts. The parts of host memory are the program (its data when the ledger is
/// constructed, and the resident code of the program and its libraries), each allocator of the backend at its
/// high-water mark, and parts that the caller adds. On the CPU their sum equals VmHWM, except for stacks, small objects
/// and memory that is never written. If the backend has device memory (DeviceFacts), the parts of device memory are the
/// backend's allocators, the parts that the caller adds, and the memory used by other processes.
class MemoryLedger {
 public:
  MemoryLedger();  ///< measures the program's own data: construct it before large allocations
  void add(std::string name, int64_t bytes) { extra_.emplace_back(std::move(name), bytes); }

  std::vector<std::pair<std::string, int64_t>> parts(Backend& backend) const;
  /// Returns one line: the peak memory of the process and its parts. A rest that belongs to no part is shown too, so
  /// that the line adds up to the peak.
  std::string report(Backend& backend) const;

  /// Adds a part `name`, e.g. for a library: the device memory in use according to the driver, less the backend's
  /// allocators and the parts added before. No effect if the backend has no device memory.
  void add_of_device(std::string name, Backend& backend);
  /// Returns the bytes of device memory in the added parts and in the allocators. Does not call the driver.
  int64_t device_bytes(Backend& backend) const;
  /// Returns one line: the used device memory according to the driver and its parts, which add up to it. Empty if the
  /// backend has no device memory.
  std::string device_report(Backend& backend) const;

 private:
  std::vector<std::pair<std::string, int64_t>> device_parts(Backend& backend) const;

  int64_t private_bytes_;
  std::vector<std::pair<std::string, int64_t>> extra_, of_device_;
};

/// Formats as "1.23 GB", "45.6 MB" or "789 KB" (powers of ten).
std::string human_bytes(int64_t bytes);

}  // namespace ashlar::training
