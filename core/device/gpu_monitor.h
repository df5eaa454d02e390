#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ashlar {

class SharedLibrary;

/// Reads clock, power and throttling reasons of an NVIDIA GPU through NVML, NVIDIA's management library, which comes
/// with the driver and is loaded at run time. Source: the NVML API reference.
class GpuMonitor {
 public:
  struct Reading {
    int64_t sm_mhz = -1;                ///< clock of the streaming multiprocessors (SM); -1: unknown
    double watts = -1;                  ///< current power; -1: unknown
    std::optional<std::string> limits;  ///< throttling reasons, e.g. "power cap"; empty if there are none; absent if
                                        ///< unknown
  };

  /// Monitors the GPU with this UUID ("GPU-..."). `seconds` is the minimum time between two queries, since a query
  /// takes time, and more frequent queries gain nothing: the values are about a tenth of a second old anyway. Throws an
  /// input_error if NVML is missing, does not start or does not know the GPU.
  explicit GpuMonitor(const std::string& uuid, double seconds = 0.1);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  /// Returns a new reading, or the last one if it is younger than `seconds`. Values that the GPU does not report are
  /// unknown.
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

/// Returns e.g. "1755 MHz  690 W  limited by power cap". Unknown values are left out.
std::string to_text(const GpuMonitor::Reading& reading);

}  // namespace ashlar
