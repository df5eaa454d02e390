#include "launch/training/run_device.h"

#include "launch/training/own_devices.h"
#include "parallel/comm/device_comm.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

RunDevice::RunDevice(const RunDeviceArgs& args) : args_(args) {
  comm::ControlPlane& ranks = args_.bootstrap.control();
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
