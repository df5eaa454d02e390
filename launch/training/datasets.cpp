#include "launch/training/datasets.h"

#include <cstring>
#include <set>
#include <string_view>

#include "data/read/token_dataset.h"
#include "data/shards/manifest.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

namespace {

/// Appends the length of a text and the text.
void pack(std::string_view text, std::string& out) {
  const auto size = static_cast<uint64_t>(text.size());
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out.append(text);
}

std::string unpack(std::string_view& packed) {
  uint64_t size = 0;
  ASHLAR_CHECK(packed.size() >= sizeof size, packed.size(), " bytes of a text's length");
  std::memcpy(&size, packed.data(), sizeof size);
  packed.remove_prefix(sizeof size);
  ASHLAR_CHECK(packed.size() >= size, packed.size(), " bytes of a text of ", size);
  std::string text(packed.substr(0, size));
  packed.remove_prefix(size);
  return text;
}

constexpr std::string_view kWhere = "[data] ";

}  // namespace

SharedManifests::SharedManifests(comm::Bootstrap& bootstrap, const std::vector<std::string>& paths) {
  comm::Communicator& world = bootstrap.world();
  const auto local = world.split({.color = bootstrap.local_root(), .key = world.rank(), .name = "machine"});
  comm::ControlPlane machine(*local, "machine");
  std::string packed;
  if (machine.rank() == 0) {
    for (const std::string& path : std::set<std::string>(paths.begin(), paths.end())) {
      Manifest m;
      try {
        m.text = data::read_manifest_text(path);
      } catch (const Error& error) {
        m = {error.what(), error.code()};
        if (m.text.starts_with(kWhere)) m.text.erase(0, kWhere.size());
      }
      pack(path, packed);
      pack(m.text, packed);
      pack(std::to_string(static_cast<int>(m.code)), packed);
    }
  }
  packed = comm::broadcast_text(machine, packed, 0);
  for (std::string_view rest = packed; !rest.empty();) {
    const std::string path = unpack(rest);
    Manifest& m = manifests_[path];
    m.text = unpack(rest);
    m.code = static_cast<ExitCode>(std::stoi(unpack(rest)));
  }
}

std::unique_ptr<data::TokenDataset> SharedManifests::open(const std::string& path) const {
  const auto found = manifests_.find(path);
  if (found == manifests_.end()) {
    throw input_error("config", "data.path names ", path, ", but not on the first rank of this machine; give",
                      " every rank the same files and overrides");
  }
  const auto& [text, code] = found->second;
  if (code != ExitCode::kDone) throw Error(code, "data", text);
  return std::make_unique<data::TokenDataset>(path, text);
}

void check_shards(comm::ControlPlane& ranks, const std::vector<data::WeightedDataset>& datasets) {
  comm::try_on_all_ranks(ranks, [&] {
    int64_t first = ranks.rank();  // shard of this dataset: shards of all datasets are assigned round-robin
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
