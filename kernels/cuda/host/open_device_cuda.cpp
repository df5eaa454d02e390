// Opens a device, and reports missing devices and failed calls.
#include <cstdlib>

#include "core/base/error.h"
#include "core/device/driver_version.h"
#include "kernels/cuda/host/cuda_state.h"

namespace ashlar::ASHLAR_DEV {

namespace {

constexpr int kLeastCapability = 80;

std::string version_text(int version) { return str_cat(version / 1000, ".", version % 1000 / 10); }

std::string visible_devices() {
  const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
  return list == nullptr ? "CUDA_VISIBLE_DEVICES is not set" : str_cat("CUDA_VISIBLE_DEVICES = \"", list, "\"");
}

[[noreturn]] void fail_old_driver(int driver, int runtime) {
  const std::string least = least_driver_for_cuda(runtime / 1000), found = driver_version();
  const bool build_for_12 = runtime / 1000 > 12 && driver / 1000 == 12;
  throw input_error(
      "run.device", "expected NVIDIA's driver ", least.empty() ? "for" : str_cat(least, " or newer, of"), " CUDA ",
      version_text(runtime), ", got ", found.empty() ? "one too old" : found, ", which supports CUDA ",
      version_text(driver), "; install a newer driver, ",
      build_for_12 ? str_cat("build with nvcc of CUDA 12 (driver ", least_driver_for_cuda(12), " or newer), ") : "",
      "on a GPU for data centers load the package cuda-compat-", runtime / 1000, "-", runtime % 1000 / 10,
      " before the driver (LD_LIBRARY_PATH), or choose run.device = \"cpu\"");
}

// True for errors that mean that the device itself has failed.
bool hardware_failed(cudaError_t status) {
  switch (status) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorContained:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady: return true;
    default: return false;
  }
}

}  // namespace

int count_devices() {
  int driver = 0, runtime = 0, count = 0;
  const bool known = cudaDriverGetVersion(&driver) == cudaSuccess && cudaRuntimeGetVersion(&runtime) == cudaSuccess;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver && known && driver == 0)
    throw input_error("run.device", "\"cuda\" needs NVIDIA's driver, and there is none here (libcuda.so.1 was not ",
                      "found); install it, or choose run.device = \"cpu\"");
  if (status == cudaErrorInsufficientDriver) fail_old_driver(driver, runtime);
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    throw input_error("run.device", "\"cuda\" finds no GPU; ", visible_devices(),
                      "; see nvidia-smi, or choose run.device = \"cpu\"");
  if (status != cudaSuccess)
    throw input_error("run.device", "the CUDA runtime does not start: ", cudaGetErrorName(status), ", ",
                      cudaGetErrorString(status), "; see nvidia-smi, or choose run.device = \"cpu\"");
  return count;
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    constexpr const char* kDigits = "0123456789abcdef";
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string name_of_device(const cudaDeviceProp& properties, int ordinal) {
  return str_cat("device ", ordinal, " (", properties.name, ", ", uuid_text(properties.uuid), ")");
}

cudaDeviceProp open_device(int ordinal) {
  const int count = count_devices();
  if (ordinal < 0 || ordinal >= count)
    throw input_error("run.device", "this rank needs device ", ordinal, " of its machine, but only ", count,
                      count == 1 ? " is" : " are", " visible (", visible_devices(),
                      "); start no more ranks on a machine than it has GPUs");
  cudaDeviceProp properties{};
  DeviceCalls calls;
  calls.name_device(str_cat("device ", ordinal));
  calls.check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  if (properties.major * 10 + properties.minor < kLeastCapability)
    throw input_error("run.device", name_of_device(properties, ordinal), " has compute capability ", properties.major,
                      ".", properties.minor, ", but this program needs ", kLeastCapability / 10, ".",
                      kLeastCapability % 10, " (A100) or newer; choose a newer GPU, or run.device = \"cpu\"");
  calls.name_device(name_of_device(properties, ordinal));
  calls.check(cudaSetDevice(ordinal), "cudaSetDevice");
  return properties;
}

void DeviceCalls::fail(cudaError_t status, const char* call) const {
  const std::string text =
      str_cat(call, ": ", cudaGetErrorName(status), ", ", cudaGetErrorString(status), "; ", device_, "; ", last_work());
  if (status == cudaErrorMemoryAllocation)
    throw resource_error("cuda", text, "; choose a smaller train.micro_batch or model");
  if (hardware_failed(status))
    throw resource_error("cuda", text,
                         "; the hardware has failed: see nvidia-smi -q and Xid lines of dmesg, reset or "
                         "exclude this device, and resume from the last checkpoint");
  throw Bug(str_cat("[cuda] ", text));
}

std::string DeviceCalls::last_work() const {
  if (count_ == 0) return "no work was queued yet";
  std::string text = "last queued work:";
  const auto size = static_cast<int64_t>(last_.size());
  for (int64_t i = count_ - 1; i >= 0 && i >= count_ - size; --i)
    text += str_cat(i == count_ - 1 ? " " : ", ", last_[static_cast<size_t>(i) % last_.size()]);
  return text;
}

}  // namespace ashlar::ASHLAR_DEV
