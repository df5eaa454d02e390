#include "launch/world.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <sstream>

#include "core/base/strings.h"

namespace ashlar::launch {

namespace {

int64_t number_from(std::initializer_list<const char*> names, int64_t otherwise) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text != nullptr && *text != '\0') return std::strtoll(text, nullptr, 10);
  }
  return otherwise;
}

// The tasks of this machine in Slurm's list of all: "4(x2),3" is 4, 4 and 3; 1 without one.
int64_t slurm_tasks_here() {
  const char* list = std::getenv("SLURM_STEP_TASKS_PER_NODE");
  int64_t machine = number_from({"SLURM_NODEID"}, 0);
  std::istringstream entries(list == nullptr ? "" : list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const size_t times = entry.find("(x");
    machine -= times == std::string::npos ? 1 : std::strtoll(entry.c_str() + times + 2, nullptr, 10);
    if (machine < 0) return std::strtoll(entry.c_str(), nullptr, 10);
  }
  return 1;
}

std::vector<int> cores_of(const cpu_set_t& mask) {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

cpu_set_t mask_of(std::span<const int> cores) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int core : cores) CPU_SET(core, &mask);
  return mask;
}

}  // namespace

World world_from_environment() {
  World world{.host = comm::Bootstrap::host_name(), .under_mpirun = comm::launched_by_mpi()};
  if (!world.under_mpirun) return world;  // a batch script has Slurm's variables, too
  world.ranks = number_from({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}, 1);
  world.rank = number_from({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}, 0);
  world.local_ranks = number_from({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}, slurm_tasks_here());
  world.local_rank = number_from({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}, 0);
  return world;
}

World world_of(comm::Bootstrap& bootstrap) {
  const comm::Communicator& all = bootstrap.world();
  return {.ranks = all.size(),
          .rank = all.rank(),
          .local_ranks = bootstrap.local_size(),
          .local_rank = bootstrap.local_rank(),
          .host = comm::Bootstrap::host_name(),
          .under_mpirun = comm::launched_by_mpi()};
}

std::vector<int> share_of_cores(const CoreShare& share) {
  const auto cores = static_cast<int64_t>(share.allowed.size());
  if (cores < share.local_ranks) return {share.allowed.begin(), share.allowed.end()};
  const int64_t begin = share.local_rank * cores / share.local_ranks;
  const int64_t end = (share.local_rank + 1) * cores / share.local_ranks;
  const int64_t size = std::min(std::max(end - begin, share.threads), cores);
  const auto first = share.allowed.begin() + std::min(begin, cores - size);
  return {first, first + size};
}

Cores share_cores(const World& world, Log& log) {
  const int64_t cores = widen_affinity(world, log);
  return {.machine = cores, .threads = std::max<int64_t>(1, cores / world.local_ranks)};
}

int64_t widen_affinity(const World& world, Log& log, int64_t threads) {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return 1;
  const std::vector<int> had = cores_of(mask);
  if (!world.under_mpirun) return static_cast<int64_t>(had.size());
  // The kernel cuts what is asked for down to what the cgroup allows.
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &all);
  if (sched_setaffinity(0, sizeof(all), &all) != 0) return static_cast<int64_t>(had.size());
  sched_getaffinity(0, sizeof(all), &all);
  const std::vector<int> allowed = cores_of(all);
  const std::vector<int> share = share_of_cores(
      {.allowed = allowed, .local_rank = world.local_rank, .local_ranks = world.local_ranks, .threads = threads});
  const bool narrow = had.size() < share.size();
  const cpu_set_t wanted = narrow ? mask_of(share) : mask;
  sched_setaffinity(0, sizeof(wanted), &wanted);
  if (narrow) {
    log.info(str_cat("rank ", world.rank, " was bound to ", had.size(), " of ", allowed.size(), " cores; it takes ",
                     share.size() == allowed.size() ? "all " : "", share.size(), ", from core ", share.front(), " to ",
                     share.back(), " (mpirun --bind-to none binds nothing)"));
  }
  return static_cast<int64_t>(allowed.size());
}

}  // namespace ashlar::launch
