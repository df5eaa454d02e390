#include "tests/evidence/watched_device.h"

#include <regex>
#include <utility>

#include "core/base/error.h"
#include "tests/gpu_emulator/block.h"
#include "tests/ptx/kernel_names.h"

namespace ashlar::evidence {
namespace {

/// As resources.txt has it: without namespaces that all kernels share.
std::string short_name(const ptx::KernelNames& names, const void* function) {
  return std::regex_replace(names.of(function), std::regex("ashlar::(instrumented::)?|\\(anonymous namespace\\)::"),
                            "");
}

}  // namespace

WatchedDevice::WatchedDevice() {
  instrumented::DeviceOptions options{.stream_order = "at_once"};
  // A launch tells which function it runs, and right after its name.
  options.substitute = [this](const emulator::KernelCall& call) {
    function_ = call.function;
    return std::function<void()>();
  };
  backend_ = std::make_unique<instrumented::EmulatedBackend>(options);
  backend_->device().state().gpu.queues().observe([this](int, std::string_view name) {
    if (const void* function = std::exchange(function_, nullptr)) launches_[std::string(name)].function = function;
  });
  // Each launch asks at least once what memory it may touch, and is looked at then.
  backend_->device().state().gpu.machine().watch({.is_device_memory = [this](const void* address, int64_t) {
    const emulator::Grid& grid = emulator::current_block().grid();
    Launch& launch = launches_[grid.name];
    launch.threads = static_cast<int>(grid.block.count());
    launch.shared_bytes = grid.shared_bytes;
    return emulator::DeviceMemory::of(address) != nullptr;
  }});
  stream_ = backend_->make_stream();
}

std::map<std::string, Measured> WatchedDevice::take() {
  static const ptx::KernelNames names;
  stream_->synchronize();
  emulator::Machine& machine = backend_->device().state().gpu.machine();
  std::map<std::string, Measured> all;
  for (const auto& [kernel, traffic] : machine.traffic()) {
    const Launch& launch = launches_[kernel];
    all[kernel] = {.traffic = traffic,
                   .instance = short_name(names, launch.function),
                   .threads = launch.threads,
                   .shared_bytes = launch.shared_bytes};
  }
  machine.clear_traffic();
  return all;
}

Measured WatchedDevice::take(const std::string& kernel) {
  const auto all = take();
  const auto found = all.find(kernel);
  ASHLAR_CHECK(found != all.end(), "[evidence] no launch of ", kernel);
  return found->second;
}

}  // namespace ashlar::evidence
