#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"

namespace ashlar::training {

int64_t resident_bytes();       ///< of this process now (VmRSS)
int64_t peak_resident_bytes();  ///< the most so far (VmHWM)

/// The same for those who ask every step: the file of /proc stays open.
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

/// What a run's memory consists of. The host's: the program (its own data before the first allocation, and the code of
/// it and its libraries that is resident when asked), each arena of the backend in it at its high-water mark, and what
/// the caller adds. On CPU the sum is what VmHWM shows, up to stacks, small objects and memory that was never written.
/// The memory of a device that is no part of the host (DeviceFacts): each allocator, and what others have taken of it.
class MemoryLedger {
 public:
  MemoryLedger();  ///< reads the program's own data: construct before anything large exists
  void add(std::string name, int64_t bytes) { extra_.emplace_back(std::move(name), bytes); }

  std::vector<std::pair<std::string, int64_t>> parts(Backend& backend) const;
  /// One line: the peak of the process, and the parts that it is, what they leave unnamed included, so that it adds up.
  std::string report(Backend& backend) const;

  /// What the driver says was taken of the device since the last call, or ever, and not by the backend's allocators, is
  /// `name`'s from now on: a context, a library. Nothing where the device is part of the host.
  void add_of_device(std::string name, Backend& backend);
  /// Of the device: what was added and what the allocators hold, in bytes. Asks no driver.
  int64_t device_bytes(Backend& backend) const;
  /// One line: what is taken of the device as its driver tells, and the parts that it is, so that it adds up. Empty
  /// where the device is part of the host.
  std::string device_report(Backend& backend) const;

 private:
  std::vector<std::pair<std::string, int64_t>> device_parts(Backend& backend) const;

  int64_t private_bytes_;
  std::vector<std::pair<std::string, int64_t>> extra_, of_device_;
};

/// "1.23 GB", "45.6 MB", "789 KB" (powers of ten).
std::string human_bytes(int64_t bytes);

}  // namespace ashlar::training
