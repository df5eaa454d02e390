#include "core/device/gpu_monitor.h"

#include "core/base/error.h"
#include "core/device/shared_library.h"

namespace ashlar {

namespace {

// Constants of nvml.h, copied here because no CUDA toolkit wheel contains that header. They are part of NVML's ABI.
constexpr unsigned kSmClock = 1;  // NVML_CLOCK_SM
struct Reason {
  unsigned long long bit;
  const char* name;
};
constexpr Reason kReasons[] = {
    {0x002, "application clocks setting"},
    {0x004, "power cap"},
    {0x008, "hardware slowdown"},
    {0x010, "sync boost"},
    {0x020, "software thermal slowdown"},
    {0x040, "hardware thermal slowdown"},
    {0x080, "power brake"},
    {0x100, "display clock setting"},
};

}  // namespace

GpuMonitor::GpuMonitor(const std::string& uuid, double seconds)
    : library_(std::make_unique<SharedLibrary>(nvml_place(), "gpu monitor")), pause_(seconds) {
  const auto check = [&](int status, const char* call) {
    if (status == 0) return;
    auto* const text = library_->optional_function<const char*(int)>("nvmlErrorString");
    throw input_error("gpu monitor", "expected ", call, " of ", library_->path(), " to succeed, got error ", status,
                      text == nullptr ? "" : str_cat(", ", text(status)), "; check the driver with nvidia-smi");
  };
  check(library_->function<int()>("nvmlInit_v2")(), "nvmlInit_v2");
  check(library_->function<int(const char*, void**)>("nvmlDeviceGetHandleByUUID")(uuid.c_str(), &device_),
        "nvmlDeviceGetHandleByUUID");
  clock_ = library_->optional_function<int(void*, unsigned, unsigned*)>("nvmlDeviceGetClockInfo");
  power_ = library_->optional_function<int(void*, unsigned*)>("nvmlDeviceGetPowerUsage");
  reasons_ = library_->optional_function<int(void*, unsigned long long*)>("nvmlDeviceGetCurrentClocksEventReasons");
  if (reasons_ == nullptr)  // drivers before 535 have another name for the function
    reasons_ =
        library_->optional_function<int(void*, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons");
}

GpuMonitor::~GpuMonitor() {
  if (auto* const shutdown = library_->optional_function<int()>("nvmlShutdown")) shutdown();
}

const GpuMonitor::Reading& GpuMonitor::read() {
  const Clock::time_point now = Clock::now();
  if (asked_ && now - *asked_ < pause_) return reading_;
  asked_ = now;
  Reading& reading = reading_ = {};
  unsigned mhz = 0, milliwatts = 0;
  unsigned long long reasons = 0;
  if (clock_ != nullptr && clock_(device_, kSmClock, &mhz) == 0) reading.sm_mhz = mhz;
  if (power_ != nullptr && power_(device_, &milliwatts) == 0) reading.watts = milliwatts / 1e3;
  if (reasons_ != nullptr && reasons_(device_, &reasons) == 0) {
    std::string& limits = reading.limits.emplace();
    for (const Reason& reason : kReasons)
      if ((reasons & reason.bit) != 0) limits += str_cat(limits.empty() ? "" : ", ", reason.name);
  }
  return reading;
}

std::string to_text(const GpuMonitor::Reading& reading) {
  std::string text;
  const auto add = [&](const std::string& part) { text += str_cat(text.empty() ? "" : "  ", part); };
  if (reading.sm_mhz >= 0) add(str_cat(reading.sm_mhz, " MHz"));
  if (reading.watts >= 0) add(str_cat(static_cast<int64_t>(reading.watts + 0.5), " W"));
  if (reading.limits && !reading.limits->empty()) add(str_cat("limited by ", *reading.limits));
  return text;
}

}  // namespace ashlar
