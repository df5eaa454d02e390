// A stand-in for NVIDIA's management library: one GPU, with readings of its own. Names and numbers are those of the API
// reference; ASHLAR_STAND_IN_NVML = "MHZ MILLIWATTS REASONS" sets what it says, "broken" makes it not start. The driver
// is ASHLAR_STAND_IN_DRIVER, or 580.65.06.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kUninitialized = 1, kInvalidArgument = 2, kNotFound = 6, kDriverNotLoaded = 9;

struct State {
  bool started = false;
  char device = 0;  ///< its address is the handle
};

State& state() {
  static State* const one = new State;
  return *one;
}

std::string said() {
  const char* const text = std::getenv("ASHLAR_STAND_IN_NVML");
  return text == nullptr ? "1980 700000 0" : text;
}

int tell(void* device, int which, unsigned long long* value) {
  if (!state().started) return kUninitialized;
  if (device != &state().device || value == nullptr) return kInvalidArgument;
  unsigned long long values[3] = {};
  if (std::sscanf(said().c_str(), "%llu %llu %llu", &values[0], &values[1], &values[2]) != 3) return kInvalidArgument;
  *value = values[which];
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  if (said() == "broken") return kDriverNotLoaded;
  state().started = true;
  return 0;
}

int nvmlShutdown() {
  if (!state().started) return kUninitialized;
  state().started = false;
  return 0;
}

const char* nvmlErrorString(int error) {
  return error == kDriverNotLoaded ? "Driver Not Loaded" : error == kNotFound ? "Not Found" : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  if (!state().started) return kUninitialized;
  const char* const said = std::getenv("ASHLAR_STAND_IN_DRIVER");
  if (version == nullptr) return kInvalidArgument;
  std::snprintf(version, length, "%s", said == nullptr ? "580.65.06" : said);
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (!state().started) return kUninitialized;
  if (uuid == nullptr || device == nullptr) return kInvalidArgument;
  if (std::strncmp(uuid, "GPU-6173686c", 12) != 0) return kNotFound;
  *device = &state().device;
  return 0;
}

int nvmlDeviceGetClockInfo(void* device, unsigned type, unsigned* mhz) {
  if (type != 1 || mhz == nullptr) return kInvalidArgument;
  unsigned long long value = 0;
  const int error = tell(device, 0, &value);
  *mhz = static_cast<unsigned>(value);
  return error;
}

int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  if (milliwatts == nullptr) return kInvalidArgument;
  unsigned long long value = 0;
  const int error = tell(device, 1, &value);
  *milliwatts = static_cast<unsigned>(value);
  return error;
}

int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
  return tell(device, 2, reasons);
}
}
