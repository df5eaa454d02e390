#include "launch/training/datasets.h"

#include <set>
#include <string_view>

#include "absl/strings/str_split.h"
#include "data/read/token_dataset.h"
#include "data/shards/manifest.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

namespace {

constexpr std::string_view kNul("\0", 1);  // separator: no path and no error text contains it
constexpr std::string_view kWhere = "[data] ";

}  // namespace

SharedManifests::SharedManifests(comm::Bootstrap& bootstrap, const std::vector<std::string>& paths) {
  comm::Communicator& world = bootstrap.world();
  const auto local = world.split({.color = bootstrap.local_root(), .key = world.rank(), .name = "machine"});
  comm::ControlPlane machine(*local, "machine");
  std::vector<std::string> read;
  for (const std::string& path : std::set<std::string>(paths.begin(), paths.end())) {
    if (machine.rank() != 0) break;
    Manifest m;
    try {
      m.text = data::read_manifest_text(path);
    } catch (const Error& error) {
      m = {error.what(), error.code()};
      if (m.text.starts_with(kWhere)) m.text.erase(0, kWhere.size());
    }
    read.push_back(str_cat(path, kNul, static_cast<int>(m.code), kNul, m.text));
  }
  for (const std::string& each : comm::unite_texts(machine, std::move(read))) {
    const std::vector<std::string> parts = absl::StrSplit(each, absl::MaxSplits('\0', 2));
    manifests_[parts[0]] = {.text = parts[2], .code = static_cast<ExitCode>(std::stoi(parts[1]))};
  }
}

std::unique_ptr<data::TokenDataset> SharedManifests::open(const std::string& path) const {
  const auto found = manifests_.find(path);
  if (found == manifests_.end()) {
    throw input_error("config", "data.path names ", path, " on this rank but not on the first rank of this ",
                      "machine; give every rank the same files and overrides");
  }
  const auto& [text, code] = found->second;
  if (code != ExitCode::kDone) throw Error(code, "data", text);
  return std::make_unique<data::TokenDataset>(path, text);
}

void check_shards(comm::ControlPlane& ranks, const std::vector<data::WeightedDataset>& datasets) {
  comm::try_on_all_ranks(ranks, [&] {
    int64_t first = ranks.rank();  // this rank's next shard of d; shards of all datasets are assigned round-robin
    for (const data::WeightedDataset& d : datasets) {
      const int64_t shards = d.dataset->num_shards();
      for (; first < shards; first += ranks.size()) d.dataset->check_shard(first);
      first -= shards;
    }
  });
}

void log_dataset_warnings(comm::ControlPlane& ranks, const std::vector<data::WeightedDataset>& datasets, Log& log) {
  if (ranks.rank() != 0) return;
  std::set<std::string> logged;  // a mixture may name one dataset twice
  for (const data::WeightedDataset& d : datasets) {
    for (const std::string& warning : d.dataset->warnings())
      if (logged.insert(warning).second) log.warn(warning);
  }
}

}  // namespace ashlar::training
