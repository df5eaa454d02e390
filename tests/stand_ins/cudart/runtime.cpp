#include "tests/stand_ins/cudart/runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <sstream>

#include "core/base/error.h"

namespace ashlar::stand_in {

namespace {

struct Process {
  std::recursive_mutex mutex;
  std::unique_ptr<Runtime> runtime;
};

Process& process() {
  static Process* const one = new Process;  // never destroyed: calls come until the very end
  return *one;
}

std::string options_of_environment() {
  const char* const text = std::getenv("ASHLAR_STAND_IN_CUDA");
  return text == nullptr ? "" : text;
}

}  // namespace

cudaDeviceProp properties_of(const Options& options, int ordinal) {
  cudaDeviceProp p{};
  std::snprintf(p.name, sizeof(p.name), "Ashlar Stand-In");  // a model, the same of all
  std::memcpy(p.uuid.bytes, "ashlar-stand-in", 16);
  p.uuid.bytes[15] = static_cast<char>(options.same_uuid ? 0 : ordinal);
  p.totalGlobalMem = static_cast<size_t>(options.memory_mib) << 20;
  p.sharedMemPerBlock = 48 << 10;
  p.sharedMemPerBlockOptin = 227 << 10;
  p.sharedMemPerMultiprocessor = 228 << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.major = options.capability / 10;
  p.minor = options.capability % 10;
  p.multiProcessorCount = 132;
  p.l2CacheSize = 50 << 20;
  p.unifiedAddressing = 1;
  p.asyncEngineCount = 3;
  p.concurrentKernels = 1;
  p.ECCEnabled = 1;
  p.pciBusID = ordinal + 1;
  return p;
}

Options Options::read(const std::string& text) {
  Options options;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals), value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "devices") {
      options.devices = std::stoi(value);
    } else if (key == "same_uuid") {
      options.same_uuid = value == "1";
    } else if (key == "memory_mib") {
      options.memory_mib = std::stoll(value);
    } else if (key == "context_mib") {
      options.context_mib = std::stoll(value);
    } else if (key == "driver") {
      options.driver = std::stoi(value);
    } else if (key == "capability") {
      options.capability = std::stoi(value);
    } else if (key == "seed") {
      options.seed = std::stoull(value);
    } else if (key == "at_once") {
      options.order = value == "1" ? emulator::StreamOrder::kAtOnce : emulator::StreamOrder::kRandom;
    } else if (key == "patience") {
      options.patience_sec = std::stod(value);
    } else if (key == "eager") {
      options.eager = value == "1";
    } else if (key == "fail" || key == "fail_for_good") {  // cudaMalloc:3:2 = the third cudaMalloc with error 2
      const size_t first = value.find(':'), second = value.rfind(':');
      if (first == second) throw input_error("ASHLAR_STAND_IN_CUDA", word, ": expected ", key, "=CALL:NUMBER:ERROR");
      options.fail = value.substr(0, first);
      options.fail_at = std::stoll(value.substr(first + 1));
      options.fail_with = std::stoi(value.substr(second + 1));
      options.fail_sticks = key == "fail_for_good";
    } else {
      throw input_error("ASHLAR_STAND_IN_CUDA", "unknown word \"", word, "\"; tests/stand_ins/README.md lists them");
    }
  }
  return options;
}

Device::Device(const Options& options, int ordinal_of_it)
    : ordinal(ordinal_of_it),
      properties(properties_of(options, ordinal)),
      gpu({.name = str_cat("stand-in device ", ordinal),
           .memory_bytes = (options.memory_mib - options.context_mib) << 20,
           .seed = options.seed + static_cast<uint64_t>(ordinal),
           .order = options.order,
           .patience_sec = options.patience_sec}),
      managed({.owner = "managed memory"}),
      context_bytes(options.context_mib << 20) {}

int Runtime::current_ordinal() const {
  const auto found = current_.find(std::this_thread::get_id());
  return found == current_.end() ? 0 : found->second;
}

Device& Runtime::device(int ordinal) {
  if (const auto found = devices_.find(ordinal); found != devices_.end()) return *found->second;
  const char* const loading = std::getenv("CUDA_MODULE_LOADING");
  if (options_.eager && (loading == nullptr || std::string_view(loading) != "EAGER"))
    throw input_error("ASHLAR_STAND_IN_CUDA", "expected CUDA_MODULE_LOADING=EAGER on several ranks");
  return *devices_.emplace(ordinal, std::make_unique<Device>(options_, ordinal)).first->second;
}

QueuedStream* Runtime::stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    Device& device = current();
    const auto [found, is_new] = null_streams_.try_emplace(device.ordinal);
    if (is_new) found->second = {.device = &device, .stream = device.gpu.make_stream(), .flags = 0, .priority = 0};
    return &found->second;
  }
  const auto found = streams_.find(handle);
  return found == streams_.end() ? nullptr : &found->second;
}

QueuedEvent* Runtime::event(cudaEvent_t handle) {
  const auto found = events_.find(handle);
  return found == events_.end() ? nullptr : &found->second;
}

// Handles are never used twice, so that one which is destroyed stays unknown.
cudaStream_t Runtime::add(QueuedStream stream) {
  const auto handle = reinterpret_cast<cudaStream_t>(next_handle_ += 16);
  streams_.emplace(handle, std::move(stream));
  return handle;
}

cudaEvent_t Runtime::add(QueuedEvent event) {
  const auto handle = reinterpret_cast<cudaEvent_t>(next_handle_ += 16);
  events_.emplace(handle, std::move(event));
  return handle;
}

// Work of the null stream comes after all work before it of streams that are not "non blocking", and before theirs
// that is queued later.
void Runtime::before_queueing(QueuedStream& stream) {
  if ((stream.flags & cudaStreamNonBlocking) != 0) return;
  emulator::WorkQueues& queues = stream.device->gpu.queues();
  const int own = emulator::VirtualGpu::index_of(*stream.stream);
  const auto wait_for = [&](const QueuedStream& other) {
    if (other.device != stream.device || (other.flags & cudaStreamNonBlocking) != 0) return;
    queues.wait_for(own, queues.mark(emulator::VirtualGpu::index_of(*other.stream)));
  };
  const auto null_stream = null_streams_.find(stream.device->ordinal);
  if (null_stream == null_streams_.end()) return;
  if (&null_stream->second != &stream) return wait_for(null_stream->second);
  for (const auto& [handle, other] : streams_) wait_for(other);
}

std::pair<Place, Device*> Runtime::place_of(const void* at, size_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  for (const auto& [ordinal, device] : devices_) {
    if (device->gpu.memory().holds(at, size) || device->managed.holds(at, size)) return {Place::kDevice, device.get()};
    if (device->gpu.pinned().holds(at, size)) return {Place::kPinned, device.get()};
  }
  return {emulator::DeviceMemory::of(at) == nullptr && at != nullptr ? Place::kHost : Place::kNowhere, nullptr};
}

void Runtime::in_callback(const std::function<void()>& run) {
  in_callback_ = true;
  struct Leaving {
    bool& flag;
    ~Leaving() { flag = false; }
  } const leaving{in_callback_};
  run();
}

void Runtime::fail(cudaError_t error, const std::string& why) {
  if (sticky_ != cudaSuccess) return;
  sticky_ = error;
  fault_ = why;
  std::fprintf(stderr, "[stand-in for CUDA] the device has failed: %s\n", why.c_str());
}

cudaError_t Runtime::checked(const char* name, bool needs_device, const std::function<cudaError_t()>& run) {
  const long number = ++calls_[name];
  if (in_callback_) return cudaErrorNotPermitted;
  if (!needs_device) return run();
  if (options_.driver == 0 || options_.driver < CUDART_VERSION / 1000 * 1000) return cudaErrorInsufficientDriver;
  if (options_.devices == 0) return cudaErrorNoDevice;
  if (options_.fail == name && options_.fail_at == number) {
    const auto error = static_cast<cudaError_t>(options_.fail_with);
    if (options_.fail_sticks) fail(error, str_cat(name, " number ", number, ", as ASHLAR_STAND_IN_CUDA asks"));
    return error;
  }
  if (sticky_ != cudaSuccess) return sticky_;
  try {
    return run();
  } catch (const Error& error) {
    if (error.code() == ExitCode::kResource) return cudaErrorMemoryAllocation;
    fail(cudaErrorLaunchFailure, error.what());
  } catch (const std::exception& error) {
    fail(cudaErrorLaunchFailure, error.what());
  }
  return sticky_;
}

cudaError_t Runtime::call(const char* name, bool needs_device, const std::function<cudaError_t()>& run) {
  const cudaError_t error = checked(name, needs_device, run);
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error_[std::this_thread::get_id()] = error;
  return error;
}

cudaError_t Runtime::take_error() {
  const cudaError_t error = peek_error();
  last_error_.erase(std::this_thread::get_id());
  return error;
}

cudaError_t Runtime::peek_error() const {
  if (sticky_ != cudaSuccess) return sticky_;
  const auto found = last_error_.find(std::this_thread::get_id());
  return found == last_error_.end() ? cudaSuccess : found->second;
}

long Runtime::calls(const std::string& name) const {
  const auto found = calls_.find(name);
  return found == calls_.end() ? 0 : found->second;
}

long Runtime::host_waits() const {
  size_t waits = 0;
  for (const auto& [ordinal, device] : devices_) waits += device->gpu.queues().host_waits().size();
  return static_cast<long>(waits);
}

Locked::Locked() : lock_(process().mutex) {
  if (!process().runtime) process().runtime = std::make_unique<Runtime>(Options::read(options_of_environment()));
}

Runtime* Locked::operator->() const { return process().runtime.get(); }

void Locked::reset(const std::string& options) {
  const std::lock_guard<std::recursive_mutex> lock(process().mutex);
  process().runtime.reset();  // its address range is free again
  process().runtime = std::make_unique<Runtime>(Options::read(options));
}

cudaError_t entry(const char* name, const std::function<cudaError_t(Runtime&)>& run) {
  const Locked runtime;
  return runtime->call(name, true, [&] { return run(*runtime); });
}

cudaError_t entry_without_device(const char* name, const std::function<cudaError_t(Runtime&)>& run) {
  const Locked runtime;
  return runtime->call(name, false, [&] { return run(*runtime); });
}

}  // namespace ashlar::stand_in
