// Ranks that train over the stand-in for NCCL, as far as a watch can tell: sums that the host waits for on the device.
// In the fifth one the last rank dies (`dies`) or stays away (`hangs`). Ends with what the watch makes of it.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/make_backend.h"
#include "launch/watch/rank_watch.h"
#include "launch/watch/signals.h"
#include "parallel/comm/bootstrap.h"
#include "parallel/comm/nccl_comm.h"
#include "tests/stand_ins/virtual_gpu_extension.h"
#include "tests/support/deferred/deferred_backend.h"

int main(int argc, char** argv) {
  using namespace ashlar;
  watch::SignalWatch signals;
  comm::Bootstrap bootstrap;
  comm::Communicator& world = bootstrap.world();
  const auto watch = watch::watch_ranks(bootstrap.control(), signals, {.after_seconds = 2});
  const std::string what = argc > 1 ? argv[1] : "";
  testing::DeferredBackend device(kernels::make_backend({.threads = 1}));
  testing::take_work_of_stand_ins(device.gpu());
  const auto over_nccl = comm::NcclComm::make(world, bootstrap.control(), device, {});
  watch->watchdog().before_end([abort = over_nccl->abort_function(), rank = world.rank()] {
    abort();
    std::fprintf(stderr, "rank %d ended its communication\n", rank);
  });
  const std::unique_ptr<Stream> stream = device.make_stream();
  const MutView x{device.allocator(MemoryKind::kGradients).allocate(256), DType::kFloat32, 1, 64, 64};
  try {
    for (int64_t step = 1; step <= 5; ++step) {
      watch->flight_recorder().step(step);
      device.fill({.dst = x, .value = 1}, *stream);
      if (step == 5 && world.rank() == world.size() - 1) {
        if (what == "dies") std::raise(SIGKILL);
        while (true) pause();
      }
      over_nccl->all_reduce({.in = x, .out = x, .op = comm::ReduceOp::kSum}, *stream).wait(*stream);
      stream->synchronize();
    }
    over_nccl->all_reduce({.in = x, .out = x, .op = comm::ReduceOp::kSum}, *stream).wait();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", world.rank(), error.what());
  }
  while (true) pause();
}
