#include "launch/world.h"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

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

}  // namespace

World world_from_environment() {
  World world;
  world.ranks = number_from({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1);
  world.rank = number_from({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0);
  world.local_ranks = number_from({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}, 1);
  world.under_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr;
  return world;
}

void widen_affinity(const World& world, Log& log) {
  if (!world.under_mpirun || world.local_ranks != 1) return;
  cpu_set_t now;
  if (sched_getaffinity(0, sizeof(now), &now) != 0) return;
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  const int had = CPU_COUNT(&now);
  if (had >= online) return;
  cpu_set_t all;
  CPU_ZERO(&all);
  for (long cpu = 0; cpu < online; ++cpu) CPU_SET(cpu, &all);
  if (sched_setaffinity(0, sizeof(all), &all) == 0) {
    log.info(str_cat("mpirun bound this rank to ", had, " of ", online, " cores; it takes all ", online,
                     " (mpirun --bind-to none does the same)"));
  }
}

}  // namespace ashlar::launch
