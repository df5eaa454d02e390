// Four ranks, of which rank 2 does something else than the others: a sum of another `size`, one of another communicator
// (`elsewhere`), or none (`missing`). Ends with what the watch makes of it.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "launch/watch/rank_watch.h"
#include "launch/watch/signals.h"
#include "parallel/comm/bootstrap.h"
#include "parallel/comm/communicator.h"

int main(int argc, char** argv) {
  using namespace ashlar;
  watch::SignalWatch signals;
  comm::Bootstrap bootstrap;
  comm::Communicator& world = bootstrap.world();
  const auto watch = watch::watch_ranks(bootstrap.control(), signals, {.after_seconds = 2});
  const std::string what = argc > 1 ? argv[1] : "";
  std::vector<float> values(128, 1.0F);
  const auto other = world.split({.color = 0, .key = world.rank(), .name = "other"});
  SynchronousStream stream;
  const auto reduce = [&](comm::Communicator& ranks, int64_t n) {
    ranks
        .all_reduce({.in = {.data = values.data(), .rows = 1, .cols = n, .stride = n},
                     .out = {.data = values.data(), .rows = 1, .cols = n, .stride = n},
                     .op = comm::ReduceOp::kSum},
                    stream)
        .wait();
  };
  try {
    for (int64_t step = 1; step <= 20; ++step) {
      watch->flight_recorder().step(step);
      reduce(world, 64);
    }
    if (world.rank() != 2) {
      reduce(world, 64);
    } else if (what == "size") {
      reduce(world, 128);
    } else if (what == "elsewhere") {
      reduce(*other, 64);
    } else {
      while (true) pause();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", world.rank(), error.what());
    _exit(70);
  }
  while (true) world.progress(), usleep(1000);  // others may be in the operation still
}
