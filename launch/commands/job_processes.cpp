#include "launch/commands/job_processes.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "core/io/posix_file.h"

namespace ashlar::launch {

namespace fs = std::filesystem;

namespace {

// Name prefixes of the files that Open MPI 4 and 5, its transports and NCCL create in /dev/shm.
constexpr std::array<std::string_view, 7> kShared = {"vader_segment.", "sm_segment.", "osc_rdma.", "psm",
                                                     "ucx_shm_",       "nccl-",       "hwloc"};
constexpr std::string_view kMemory = "/dev/shm/";

/// Returns the value of a variable in the text of /proc/PID/environ; empty if absent.
std::string variable_of(const std::string& environment, std::string_view name) {
  const std::string wanted = str_cat(name, "=");
  for (size_t at = 0; at < environment.size(); at = environment.find('\0', at) + 1) {
    if (environment.compare(at, wanted.size(), wanted) == 0) return environment.c_str() + at + wanted.size();
    if (environment.find('\0', at) == std::string::npos) break;
  }
  return "";
}

}  // namespace

JobProcesses::JobProcesses() {
  std::array<uint64_t, 2> number{};
  if (getrandom(number.data(), sizeof(number), 0) != static_cast<ssize_t>(sizeof(number)))
    number = {static_cast<uint64_t>(getpid()), static_cast<uint64_t>(getppid())};
  name_ = absl::StrFormat("%016x%016x", number[0], number[1]);
}

std::vector<pid_t> JobProcesses::living(pid_t mpirun) const {
  std::vector<pid_t> found;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error); !error && at != fs::directory_iterator(); at.increment(error)) {
    const auto pid = parse_number<pid_t>(at->path().filename().string());
    if (!pid || *pid == mpirun || *pid == getpid()) continue;
    if (variable_of(io::text_if_readable(at->path() / "environ"), kVariable) == name_) found.push_back(*pid);
  }
  return found;
}

void JobProcesses::end_all(pid_t mpirun) const {
  for (const pid_t pid : living(mpirun)) kill(pid, SIGKILL);
}

void JobProcesses::look(pid_t mpirun) {
  for (const pid_t pid : living(mpirun)) {
    const fs::path process = str_cat("/proc/", pid);
    std::ifstream maps(process / "maps");
    for (std::string line; std::getline(maps, line);) {
      const size_t at = line.find(kMemory);
      if (at == std::string::npos || line.ends_with(" (deleted)")) continue;
      const std::string_view name = std::string_view(line).substr(at + kMemory.size());
      if (std::ranges::any_of(kShared, [&](std::string_view begin) { return name.starts_with(begin); }))
        files_.insert(line.substr(at));
    }
    const fs::path session = variable_of(io::text_if_readable(process / "environ"), "OMPI_MCA_orte_jobfam_session_dir");
    if (session.filename() == str_cat("pid.", mpirun)) directories_.insert(session);
  }
}

void JobProcesses::remove_leftovers() {
  std::error_code gone;
  for (const std::string& file : files_) fs::remove(file, gone);
  for (const std::string& directory : directories_) fs::remove_all(directory, gone);
  files_.clear();
  directories_.clear();
}

}  // namespace ashlar::launch
