#include "launch/training/rank_watch.h"

#include "parallel/comm/bootstrap.h"
#include "parallel/comm/host.h"

namespace ashlar::training {

RankWatch::RankWatch(const std::filesystem::path& run_dir, const RankInfo& info, comm::ControlPlane& world,
                     SignalWatch& signal_watch)
    : signals(signal_watch), board(run_dir, info, world.engine()) {
  signals.before_leaving([this] { board.leave(RankState::kFailed); });
}

RankWatch::~RankWatch() { signals.before_leaving(nullptr); }

std::unique_ptr<RankWatch> watch_ranks(const std::filesystem::path& run_dir, comm::ControlPlane& world,
                                       SignalWatch& signals) {
  if (world.size() == 1) return nullptr;
  uint64_t job = new_job();
  comm::broadcast_bytes(world, std::as_writable_bytes(std::span(&job, 1)), 0);
  const RankInfo info{.rank = world.rank(), .ranks = world.size(), .host = comm::Bootstrap::host_name(), .job = job};
  return std::make_unique<RankWatch>(run_dir, info, world, signals);
}

}  // namespace ashlar::training
