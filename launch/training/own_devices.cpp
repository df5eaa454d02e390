#include "launch/training/own_devices.h"

#include <map>
#include <string>
#include <vector>

#include "core/device/device_facts.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

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
                          "; start no more ranks on a machine than it has GPUs, and let each see its own "
                          "(CUDA_VISIBLE_DEVICES)");
    }
  });
}

}  // namespace ashlar::training
