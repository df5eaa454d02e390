#include "launch/training/rank_watch.h"

#include "parallel/comm/bootstrap.h"
#include "parallel/comm/host.h"

namespace ashlar::training {

std::unique_ptr<RankWatch> watch_ranks(const std::filesystem::path& run_dir, comm::Communicator& world) {
  if (world.size() == 1) return nullptr;
  uint64_t job = new_job();
  comm::broadcast_bytes(world, std::as_writable_bytes(std::span(&job, 1)), 0);
  const RankInfo info{.rank = world.rank(), .ranks = world.size(), .host = comm::Bootstrap::host_name(), .job = job};
  return std::unique_ptr<RankWatch>(new RankWatch{.board = {run_dir, info, world.engine()}});
}

}  // namespace ashlar::training
