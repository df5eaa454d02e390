#include "launch/training/run_device.h"

#include <cstdlib>
#include <map>

#include "core/device/device_facts.h"
#include "parallel/comm/device_comm.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

namespace {

/// Ranks on devices with their own memory must have one device each. If two ranks have the same device
/// (DeviceFacts::id), every rank throws an input_error that names both ranks and the device. Called by all ranks.
void check_own_devices(comm::ControlPlane& ranks, Backend& backend) {
  auto* const device = dynamic_cast<DeviceFacts*>(&backend);
  const std::vector<std::string> ids = comm::gather_texts_at(ranks, device == nullptr ? "" : device->id(), 0);
  comm::try_on_all_ranks(ranks, [&] {
    std::map<std::string, size_t> owners;
    for (size_t rank = 0; rank < ids.size(); ++rank) {
      if (ids[rank].empty()) continue;
      const auto [first, is_new] = owners.try_emplace(ids[rank], rank);
      if (!is_new)
        throw input_error("run.device", "ranks ", first->second, " and ", rank, " have the same device, ", ids[rank],
                          "; start no more ranks on a machine than it has GPUs, and let each rank see only its own "
                          "GPU (CUDA_VISIBLE_DEVICES)");
    }
  });
}

}  // namespace

RunDevice::RunDevice(const RunDeviceArgs& args) : args_(args) {
  comm::ControlPlane& ranks = args_.bootstrap.control();
  // By default a kernel's code is loaded at its first launch, which waits for running kernels. A kernel of NCCL runs
  // until the other ranks have come, and they may wait for this launch. So ranks load all code at the start.
  const bool several_gpus = args_.run.device == config::Device::kCuda && ranks.size() > 1;
  if (several_gpus) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  comm::try_on_all_ranks(ranks, [&] {
    backend_ = args_.make_backend ? args_.make_backend()
                                  : kernels::make_backend({.device = std::string(name_of(args_.run.device)),
                                                           .local_rank = args_.bootstrap.local_rank(),
                                                           .threads = static_cast<int>(args_.run.threads),
                                                           .log = &args_.log,
                                                           .attention = args_.attention});
  });
  check_own_devices(ranks, *backend_);
  if (args_.memory != nullptr) args_.memory->add_of_device("context", *backend_);
  stream_ = backend_->make_stream();
}

RunDevice::~RunDevice() = default;

std::function<void()> RunDevice::connect() {
  comm::DeviceComm device = comm::make_device_comm({.host = args_.bootstrap.world(),
                                                    .control = args_.bootstrap.control(),
                                                    .backend = *backend_,
                                                    .log = args_.log,
                                                    .cuda = args_.run.device == config::Device::kCuda});
  comm_ = std::move(device.all);
  if (args_.memory != nullptr) args_.memory->add_of_device("nccl", *backend_);
  return std::move(device.abort);
}

comm::Communicator& RunDevice::ranks() { return comm_ ? *comm_ : args_.bootstrap.world(); }

}  // namespace ashlar::training
