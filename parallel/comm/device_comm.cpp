#include "parallel/comm/device_comm.h"

#include <cstdlib>

#include "core/base/error.h"
#include "parallel/comm/nccl_comm.h"
#include "parallel/comm/staged_comm.h"

namespace ashlar::comm {

DeviceComm make_device_comm(const DeviceCommArgs& args) {
  if (args.cuda && args.host.size() > 1) {
    try {
      std::unique_ptr<NcclComm> nccl =
          NcclComm::make(args.host, args.control, args.backend,
                         {.deterministic = args.deterministic, .log = args.host.rank() == 0 ? &args.log : nullptr});
      if (auto* const memory = dynamic_cast<HasMemorySource*>(&args.backend)) {
        constexpr MemoryKind kKinds[] = {MemoryKind::kParameters, MemoryKind::kGradients};
        if (std::shared_ptr<MemorySource> source = nccl->memory_for_windows())
          memory->set_memory_source(std::move(source), kKinds);
      }
      if (args.host.rank() == 0)
        args.log.info(str_cat("ranks exchange over ", nccl->description(),
                              args.deterministic ? ", with one algorithm and protocol" : ""));
      std::function<void()> abort = nccl->abort_function();
      return {.all = std::move(nccl), .abort = std::move(abort)};
    } catch (const Error& error) {
      // NcclComm::make throws the same error on all ranks, so all ranks decide alike.
      const char* const named = std::getenv("ASHLAR_NCCL");
      if (error.code() != ExitCode::kInput || (named != nullptr && *named != '\0')) throw;
      if (args.host.rank() == 0)
        args.log.warn(str_cat(error.what(), ". Ranks exchange through host memory, which is much slower"));
    }
  }
  return {.all = make_device_comm(args.host, args.backend), .abort = {}};
}

bool make_window(Communicator& communicator, const MutView& buffer) {
  auto* const nccl = dynamic_cast<NcclComm*>(&communicator);
  return nccl != nullptr && nccl->make_window(buffer);
}

}  // namespace ashlar::comm
