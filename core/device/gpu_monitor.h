#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ashlar {

class SharedLibrary;

/// What an NVIDIA GPU says of its clock, its power and what holds it back, through NVIDIA's management library (NVML),
/// which comes with the driver and is found when the program runs. Source: the NVML API reference.
class GpuMonitor {
 public:
  struct Reading {
    int64_t sm_mhz = -1;  ///< clock of the multiprocessors; -1: not told
    double watts = -1;    ///< drawn now; -1: not told
    std::optional<std::string>
        limits;  ///< what holds the clock down, "power cap, heat"; empty: nothing; absent: not told
  };

  /// The device of that UUID ("GPU-..."), asked again no sooner than after `seconds`: an answer takes time, and is some
  /// tenth of a second old. Throws input_error in one line where the library is missing, does not start or does not
  /// know the device.
  explicit GpuMonitor(const std::string& uuid, double seconds = 0.1);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  /// What it says, or said last. What it does not tell stays untold.
  const Reading& read();

 private:
  using Clock = std::chrono::steady_clock;

  std::unique_ptr<SharedLibrary> library_;
  void* device_ = nullptr;
  int (*clock_)(void*, unsigned, unsigned*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*reasons_)(void*, unsigned long long*) = nullptr;
  std::chrono::duration<double> pause_;
  std::optional<Clock::time_point> asked_;
  Reading reading_;
};

/// "1755 MHz  690 W  held by power cap"; what was not told is left out.
std::string to_text(const GpuMonitor::Reading& reading);

}  // namespace ashlar
