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

// Major version of Open MPI; 0 for another MPI.
int64_t open_mpi_major(const std::string& version) {
  constexpr std::string_view kName = "(Open MPI) ";
  const size_t at = version.find(kName);
  return at == std::string::npos ? 0 : std::strtoll(version.c_str() + at + kName.size(), nullptr, 10);
}

struct Hosts {
  std::string text;  ///< hosts with their numbers of ranks
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

// Environment variables that ranks on other machines need and that a remote shell does not pass.
bool is_exported(const std::string& name) {
  return name == "LD_LIBRARY_PATH" || name.starts_with("ASHLAR_") || name.starts_with("OMP_") ||
         name.starts_with("ONEDNN_");
}

/// The command line of Hydra, MPICH's mpirun.
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
    if (!new_names) add_mca("plm", "isolated");  // this machine only: needs no ssh
    add_mca("pml", "ob1");  // ranks of one machine need no fabric; skipping the search saves 0.2 s per start
  }
  add_mca("btl", new_names ? "self,sm,tcp" : "self,vader,tcp");
  if (new_names) add({"--prtemca", "prte_abort_on_non_zero_status", "1"});
  if (!new_names) add_mca("orte_abort_on_non_zero_status", "1");
  if (several) {
    // A machine that loses power sends nothing. With these settings mpirun polls the machine and gives up after 4 s. By
    // default mpirun would wait for the TCP timeout, a quarter of an hour, after the other ranks have ended.
    for (const auto& [key, value] : {std::pair("time", "1"), std::pair("intvl", "1"), std::pair("probes", "3")}) {
      if (new_names) add({"--prtemca", str_cat("prte_keepalive_", key), value});
      if (!new_names) add_mca(str_cat("oob_tcp_keepalive_", key), value);
    }
    // Seconds between SIGTERM and SIGKILL: with the default of one, a slow machine cannot always report the lost rank.
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
    // $'...' has escapes for terminal control characters.
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
