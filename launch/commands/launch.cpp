#include "launch/commands/subcommands.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <system_error>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/device/host_limits.h"
#include "core/io/posix_file.h"
#include "launch/commands/arguments.h"
#include "launch/commands/commands.h"
#include "launch/commands/mpirun_child.h"
#include "launch/commands/mpirun_line.h"
#include "launch/commands/restarts.h"
#include "launch/commands/session.h"
#include "launch/cpu_threads.h"
#include "launch/packaging/bundled_mpi.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

namespace fs = std::filesystem;

const char* const kLaunchHelp =
    R"(ashlar launch -np N [--hostfile FILE | --host a,b] [--restarts N] [--dry-run] [--] COMMAND ...

Runs `ashlar COMMAND ...` on N ranks: prints the mpirun command for this machine, then runs it
and returns its exit code, or 5 when other ranks have reported a lost rank. Signals are forwarded; mpirun's
repetition of a rank's own error is dropped.

  -np N, -n N       number of ranks; they run on this machine unless hosts are given
  --hostfile FILE   machines, one per line: `host slots=8`; all must see the program and the run directory
  --host a,b        machines; a:2,b:6 also gives the number of ranks of each
  --restarts N      restarts a training run: after a lost rank or a hang (code 5) it starts again from the newest
                    checkpoint, after 1 s, then 2, 4, up to 60 s; ends after N restarts in a row without a new
                    checkpoint. metrics.jsonl and the last line report the goodput. No restart after a signal
  --dry-run         prints the mpirun command and runs nothing

SIGTERM, SIGHUP, SIGINT (Ctrl-C) and SIGUSR1 let the ranks of a training run save and stop (exit codes 76, 76,
77, 75), also while they start; a second one ends them at once.

Options of mpirun itself can be added to the command that --dry-run prints. SIGUSR1 to mpirun reaches the
ranks, which then save; after SIGTERM they have about a second.
)";

namespace {

std::string find_mpirun() {
  if (const fs::path bundled = packaging::bundled_mpi(); !bundled.empty()) return (bundled / "bin/mpirun").string();
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string program = (fs::path(folder.empty() ? "." : folder) / "mpirun").string();
    std::error_code unreadable;  // ignored: a folder of PATH may be unreadable
    if (fs::is_regular_file(program, unreadable) && access(program.c_str(), X_OK) == 0) return program;
  }
  throw input_error("launch",
                    "expected mpirun on PATH, got none; install openmpi-bin (Debian, Ubuntu), or load the "
                    "cluster's Open MPI");
}

std::string version_of(const std::string& mpirun) {
  const std::string command = shell_line({mpirun, "--version"}) + " </dev/null 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text(256, '\0');
  text.resize(pipe == nullptr ? 0 : std::fread(text.data(), 1, text.size(), pipe.get()));
  return text;
}

// Returns the number of physical cores that this process may use, as Open MPI counts them.
int64_t whole_cores() {
  std::set<std::string> cores;
  for (const int cpu : allowed_cpus()) {
    std::ifstream file(str_cat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = str_cat("cpu", cpu);
    cores.insert(siblings);
  }
  return std::max<int64_t>(1, static_cast<int64_t>(cores.size()));
}

LocalMpirun look_around() {
  LocalMpirun here{
      .path = find_mpirun(), .host = comm::Bootstrap::host_name(), .cores = whole_cores(), .root = geteuid() == 0};
  here.version = version_of(here.path);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    here.environment.emplace_back(*variable, std::strcspn(*variable, "="));
  }
  std::ranges::sort(here.environment);
  const char* nodes = std::getenv("SLURM_JOB_NUM_NODES");
  here.allocated = nodes != nullptr && std::atoi(nodes) > 1;
  return here;
}

std::string read_hostfile(const std::string& name) {
  io::require_regular_file(name, "launch");
  std::ifstream file(name);
  std::ostringstream text;
  if (!fs::is_regular_file(name) || !(text << file.rdbuf())) {
    throw input_error("launch", "--hostfile ", printable(name),
                      " cannot be read or is empty; write one line per machine: ", "host slots=8");
  }
  return text.str();
}

// Returns the index of COMMAND, or of the `--` before it: the first word that is neither an option of launch nor an
// option's value.
size_t command_at(std::span<const std::string> words) {
  size_t i = 0;
  while (i < words.size() && words[i].starts_with('-') && words[i] != "--") {
    const bool value_follows = words[i] == "-np" || words[i] == "-n" || words[i] == "--hostfile" ||
                               words[i] == "--host" || words[i] == "--restarts";
    i += value_follows && i + 1 < words.size() ? 2 : 1;
  }
  return i;
}

}  // namespace

int run_launch_command(Words words, Session& session) {
  const size_t split = command_at(words);
  Arguments arguments("launch", words.first(split));
  const bool marked = split < words.size() && words[split] == "--";
  const std::span<const std::string> command = words.subspan(split + (marked ? 1 : 0));
  constexpr int64_t kMostRanks = 1 << 20;
  RequestedRanks wanted;
  const int64_t n = arguments.integer("-n", 0, 1, kMostRanks), np = arguments.integer("-np", 0, 1, kMostRanks);
  wanted.hosts = arguments.option("--host").value_or("");
  wanted.hostfile = arguments.option("--hostfile").value_or("");
  const bool dry = arguments.flag("--dry-run");
  const int64_t restarts = arguments.integer("--restarts", 0, 0, kMostRanks);
  arguments.positionals();
  constexpr const char* kUsage = "; usage: ashlar launch -np N COMMAND ...";
  if (n > 0 && np > 0) throw input_error("launch", "-np ", np, " and -n ", n, " are the same option; give one");
  wanted.ranks = std::max(n, np);
  if (wanted.ranks == 0) throw input_error("launch", "expected -np and a number of ranks, got none", kUsage);
  if (command.empty()) throw input_error("launch", "expected a command such as train, got none", kUsage);
  if (command[0] == "launch") throw input_error("launch", "expected a command such as train, got launch", kUsage);
  check_command(command[0]);
  if (restarts > 0 && command[0] != "train")
    throw input_error("launch", "expected --restarts only with the command train, which resumes from checkpoints, got ",
                      printable(command[0]), "; remove --restarts");
  if (!wanted.hosts.empty() && !wanted.hostfile.empty()) {
    throw input_error("launch", "expected --host or --hostfile, got both; give one");
  }
  if (!wanted.hostfile.empty()) wanted.hostfile_text = read_hostfile(wanted.hostfile);

  wanted.command = {fs::read_symlink("/proc/self/exe").string()};
  wanted.command.insert(wanted.command.end(), command.begin(), command.end());
  LocalMpirun here = look_around();
  const std::vector<std::string> line = mpirun_line(wanted, here);
  if (dry) {
    session.out << shell_line(line) << "\n";
    return 0;
  }
  const std::vector<std::string> words_of_it(command.begin(), command.end());
  MpirunChild job({.prints_result = prints_its_result(words_of_it), .saves = command[0] == "train"});
  job.print_line(shell_line(line));  // on standard error, because standard output belongs to the command
  for (const char* name : job.variables()) here.environment.emplace_back(name);
  const auto run = [&](const std::vector<std::string>& train_words) {
    wanted.command.resize(2);
    wanted.command.insert(wanted.command.end(), train_words.begin(), train_words.end());
    return job.run(mpirun_line(wanted, here));
  };
  const std::vector<std::string> rest(command.begin() + 1, command.end());
  int code = restarts == 0 ? run(rest)
                           : keep_alive({.restarts = restarts,
                                         .run_dir = run_directory_of(rest),
                                         .words = rest,
                                         .run = run,
                                         .asked_to_end = [&] { return job.asked_to_end(); },
                                         .wait = [&](std::chrono::milliseconds time) { return job.wait(time); },
                                         .say = [&](const std::string& text) { job.print(text); }});
  code = job.exit_code(code);  // a signal may also have arrived between two attempts
  job.finish(code);
  return code;
}

}  // namespace ashlar::launch
