#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ashlar {

class SharedLibrary;

/// Clock, power and throttling reasons of an NVIDIA GPU, through NVIDIA's management library (NVML), which comes with
/// the driver and is loaded at run time. Source: the NVML API reference.
class GpuMonitor {
 public:
  struct Reading {
    int64_t sm_mhz = -1;                ///< clock of the multiprocessors; -1: unknown
    double watts = -1;                  ///< current power; -1: unknown
    std::optional<std::string> limits;  ///< throttling reasons, "power cap, heat"; empty: none; absent: unknown
  };

  /// The device with that UUID ("GPU-..."), queried at most once per `seconds`: a query takes time, and its result is
  /// about a tenth of a second old. Throws input_error in one line if the library is missing, does not start or does
  /// not know the device.
  explicit GpuMonitor(const std::string& uuid, double seconds = 0.1);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  /// The current or last reading. Values that the device does not report are unknown.
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

/// "1755 MHz  690 W  limited by power cap"; unknown values are left out.
std::string to_text(const GpuMonitor::Reading& reading);

}  // namespace ashlar
