// What a GPU says of itself, from a stand-in for NVIDIA's management library.
#include "core/device/gpu_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/base/error.h"
#include "core/device/driver_version.h"

namespace ashlar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kKnown = "GPU-6173686c-6172-2d73-7461-6e642d696e00";

class GpuMonitors : public ::testing::Test {
 protected:
  GpuMonitors() { setenv("ASHLAR_NVML", ASHLAR_STAND_IN_NVML_LIBRARY, 1); }
  ~GpuMonitors() override {
    unsetenv("ASHLAR_NVML");
    unsetenv("ASHLAR_STAND_IN_NVML");
  }
  static std::string refusal(const char* uuid) {
    try {
      GpuMonitor monitor(uuid);
    } catch (const Error& error) {
      return error.what();
    }
    return "it opened";
  }
};

TEST_F(GpuMonitors, TellClockPowerAndWhatHoldsTheClock) {
  GpuMonitor monitor(kKnown, 0);
  GpuMonitor::Reading reading = monitor.read();
  EXPECT_EQ(reading.sm_mhz, 1980);
  EXPECT_EQ(reading.watts, 700);
  EXPECT_EQ(reading.limits, "");
  EXPECT_EQ(to_text(reading), "1980 MHz  700 W");
  setenv("ASHLAR_STAND_IN_NVML", "1410 699600 100", 1);  // 0x64
  reading = monitor.read();
  EXPECT_EQ(reading.limits, "power cap, software thermal slowdown, hardware thermal slowdown");
  EXPECT_EQ(to_text(reading),
            "1410 MHz  700 W  limited by power cap, software thermal slowdown, hardware thermal slowdown");
}

TEST_F(GpuMonitors, LeaveOutWhatIsNotTold) {
  GpuMonitor monitor(kKnown, 0);
  setenv("ASHLAR_STAND_IN_NVML", "nothing", 1);
  const GpuMonitor::Reading reading = monitor.read();
  EXPECT_EQ(reading.sm_mhz, -1);
  EXPECT_EQ(reading.watts, -1);
  EXPECT_FALSE(reading.limits.has_value());
  EXPECT_EQ(to_text(reading), "");
}

TEST_F(GpuMonitors, AreNotAskedAgainSoonerThanTheyMay) {
  GpuMonitor monitor(kKnown, 3600);
  EXPECT_EQ(monitor.read().sm_mhz, 1980);
  setenv("ASHLAR_STAND_IN_NVML", "1410 699600 0", 1);
  EXPECT_EQ(monitor.read().sm_mhz, 1980);
}

TEST_F(GpuMonitors, SayWhyThereIsNone) {
  EXPECT_THAT(refusal("GPU-00000000"), AllOf(HasSubstr("nvmlDeviceGetHandleByUUID"), HasSubstr("Not Found")));
  setenv("ASHLAR_STAND_IN_NVML", "broken", 1);
  EXPECT_THAT(refusal(kKnown), AllOf(HasSubstr("nvmlInit_v2"), HasSubstr("Driver Not Loaded")));
  setenv("ASHLAR_NVML", "/nowhere/libnvidia-ml.so.1", 1);
  EXPECT_THAT(refusal(kKnown), AllOf(HasSubstr("NVML"), HasSubstr("/nowhere"), HasSubstr("driver")));
}

TEST_F(GpuMonitors, TellTheDriversVersion) {
  EXPECT_EQ(driver_version(), "580.65.06");
  setenv("ASHLAR_STAND_IN_DRIVER", "550.54.14", 1);
  EXPECT_EQ(driver_version(), "550.54.14");
  unsetenv("ASHLAR_STAND_IN_DRIVER");
  setenv("ASHLAR_STAND_IN_NVML", "broken", 1);
  EXPECT_EQ(driver_version(), "");
  setenv("ASHLAR_NVML", "/nowhere/libnvidia-ml.so.1", 1);
  EXPECT_EQ(driver_version(), "") << "no error: whoever asks has one to report";
  EXPECT_EQ(least_driver_for_cuda(13), "580");
  EXPECT_EQ(least_driver_for_cuda(12), "525");
  EXPECT_EQ(least_driver_for_cuda(14), "");
}

}  // namespace
}  // namespace ashlar
