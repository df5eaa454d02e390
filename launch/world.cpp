#include "launch/world.h"

#include <cstdlib>
#include <initializer_list>
#include <sstream>

namespace ashlar::launch {

namespace {

int64_t number_from(std::initializer_list<const char*> names, int64_t otherwise) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text != nullptr && *text != '\0') return std::strtoll(text, nullptr, 10);
  }
  return otherwise;
}

// Returns the number of tasks on this machine. Slurm's list has the tasks of each machine: "4(x2),3" means 4, 4 and 3.
// Returns 1 without a list.
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

}  // namespace

World world_from_environment() {
  World world{.host = comm::Bootstrap::host_name(), .under_mpirun = comm::launched_by_mpi()};
  if (!world.under_mpirun) return world;  // a batch script has Slurm's variables too, but is not a rank
  world.ranks = number_from({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}, 1);
  world.rank = number_from({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}, 0);
  world.local_ranks = number_from({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}, slurm_tasks_here());
  world.local_rank = number_from({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}, 0);
  return world;
}

}  // namespace ashlar::launch
