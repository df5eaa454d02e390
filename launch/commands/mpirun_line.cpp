#include "launch/commands/mpirun_line.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <sstream>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/commands/hostfile.h"

namespace ashlar::launch {

namespace {

// Returns the major version of Open MPI; 0 for another MPI.
int64_t open_mpi_major(const std::string& version) {
  constexpr std::string_view kName = "(Open MPI) ";
  const size_t at = version.find(kName);
  return at == std::string::npos ? 0 : std::strtoll(version.c_str() + at + kName.size(), nullptr, 10);
}

struct Hosts {
  std::string text;  ///< hosts and their numbers of ranks, e.g. "a:2,b:4"
  int64_t slots = 0;
};

Hosts distribute(const std::string& hosts, int64_t ranks) {
  std::vector<std::string> names;
  std::istringstream stream(hosts);
  for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
  Hosts result;
  int64_t bare = 0;
  for (const std::string& name : names) {
    const size_t colon = name.find(':');
    if (colon == std::string::npos) ++bare;
    if (colon != std::string::npos)
      result.slots += count_of(std::string_view(name).substr(colon + 1), str_cat("--host ", printable(name)));
  }
  const int64_t share = bare == 0 ? 0 : std::max<int64_t>(1, (ranks - result.slots + bare - 1) / bare);
  result.slots += bare * share;
  for (const std::string& name : names) {
    const std::string count = name.find(':') == std::string::npos ? str_cat(":", share) : "";
    result.text += str_cat(result.text.empty() ? "" : ",", name, count);
  }
  return result;
}

// True for environment variables that ranks on other machines need and that a remote shell does not pass on.
bool is_exported(const std::string& name) {
  return name == "LD_LIBRARY_PATH" || name.starts_with("ASHLAR_") || name.starts_with("OMP_") ||
         name.starts_with("ONEDNN_");
}

/// Returns the command line for Hydra, MPICH's mpirun.
std::vector<std::string> hydra_line(const RequestedRanks& wanted, const LocalMpirun& here) {
  std::vector<std::string> line = {here.path};
  const auto add = [&](std::initializer_list<std::string> words) { line.insert(line.end(), words); };
  if (!wanted.hosts.empty()) add({"-hosts", wanted.hosts});
  if (!wanted.hostfile.empty()) add({"-f", wanted.hostfile});
  add({"-n", str_cat(wanted.ranks)});
  line.insert(line.end(), wanted.command.begin(), wanted.command.end());
  return line;
}

}  // namespace

std::vector<std::string> mpirun_line(const RequestedRanks& wanted, const LocalMpirun& here) {
  const int64_t major = open_mpi_major(here.version);
  if (major == 0) return hydra_line(wanted, here);
  std::vector<std::string> line = {here.path};
  const auto add = [&](std::initializer_list<std::string> words) { line.insert(line.end(), words); };
  // Settings in the user's environment are not overridden.
  const auto add_mca = [&](const std::string& key, const std::string& value) {
    const auto& set = here.environment;
    if (std::ranges::find(set, "OMPI_MCA_" + key) == set.end()) add({"--mca", key, value});
  };
  const bool given = !wanted.hosts.empty() || !wanted.hostfile.empty();
  const bool new_names = major >= 5;
  const Hosts hosts = distribute(wanted.hosts, wanted.ranks);
  const int64_t slots = !wanted.hosts.empty() ? hosts.slots
                        : !wanted.hostfile.empty()
                            ? hostfile_slots(wanted.hostfile_text, here.cores, wanted.hostfile, here.host)
                        : here.allocated ? wanted.ranks
                                         : here.cores;
  if (here.root) add({"--allow-run-as-root"});
  if (wanted.ranks > slots) {
    if (new_names) add({"--map-by", ":OVERSUBSCRIBE"});
    if (!new_names) add({"--oversubscribe"});
  }
  add({"--bind-to", "none"});
  const bool several = given || here.allocated;
  if (!several) {
    if (!new_names) add_mca("plm", "isolated");  // the ranks run on this machine only, without ssh
    add_mca("pml", "ob1");  // ranks of one machine need no network; not searching for one saves 0.2 s
  }
  add_mca("btl", new_names ? "self,sm,tcp" : "self,vader,tcp");
  if (new_names) add({"--prtemca", "prte_abort_on_non_zero_status", "1"});
  if (!new_names) add_mca("orte_abort_on_non_zero_status", "1");
  if (several) {
    // A machine that loses power sends nothing, so mpirun does not notice the loss by itself. With these settings
    // mpirun polls each machine and gives up after 4 s without an answer. By default, mpirun would wait a quarter of an
    // hour (the TCP timeout) after the other ranks have ended.
    for (const auto& [key, value] : {std::pair("time", "1"), std::pair("intvl", "1"), std::pair("probes", "3")}) {
      if (new_names) add({"--prtemca", str_cat("prte_keepalive_", key), value});
      if (!new_names) add_mca(str_cat("oob_tcp_keepalive_", key), value);
    }
    // Sets the time between SIGTERM and SIGKILL to 2 s. With the default of 1 s a slow machine cannot always report the
    // lost rank.
    constexpr const char* kPatience = "odls_base_sigkill_timeout";
    if (new_names) add({"--prtemca", kPatience, "2"});
    if (!new_names) add_mca(kPatience, "2");
  }
  if (!wanted.hosts.empty()) add({"--host", hosts.text});
  if (!wanted.hostfile.empty()) add({"--hostfile", wanted.hostfile});
  if (several) {
    for (const std::string& name : here.environment) {
      if (is_exported(name)) add({"-x", name});
    }
  }
  add({"-np", str_cat(wanted.ranks)});
  line.insert(line.end(), wanted.command.begin(), wanted.command.end());
  return line;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
      return std::isalnum(c) != 0 || std::string_view("-_./=:,@%+").find(static_cast<char>(c)) != std::string::npos;
    });
    if (!line.empty()) line += ' ';
    if (plain) {
      line += word;
      continue;
    }
    // A word with control characters is quoted as $'...', where they can be written as escapes such as \x1b.
    const bool acts = std::ranges::any_of(word, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
    line += acts ? "$'" : "'";
    for (const char c : word) {
      const auto byte = static_cast<unsigned char>(c);
      if (acts && (byte < 0x20 || byte == 0x7f)) {
        line += absl::StrFormat("\\x%02x", byte);
      } else if (acts && (c == '\'' || c == '\\')) {
        line += std::string("\\") + c;
      } else {
        line += c == '\'' ? std::string("'\\''") : std::string(1, c);
      }
    }
    line += '\'';
  }
  return line;
}

}  // namespace ashlar::launch
