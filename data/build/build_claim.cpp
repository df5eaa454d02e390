#include "data/build/build_claim.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/base/error_text.h"
#include "core/io/atomic_file.h"
#include "core/io/posix_file.h"
#include "data/shards/hdf5_identity.h"
#include "data/shards/hdf5_shard.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;

/// True if `name` is a file name that a build may use.
bool of_a_build(const std::string& name) {
  const std::string whole = io::without_partial(name).string();
  const bool shard = whole.ends_with(".h5");
  for (const Part part : kParts)
    if (shard && name.starts_with(str_cat(name_of(part), "-"))) return true;
  return name.starts_with("build.") || whole == "stdin.spool" || (whole == "manifest.json" && whole != name);
}

bool in_manifest(const Manifest& manifest, const std::string& name) {
  const auto shard = shard_named(name);
  return shard && shard->shard < static_cast<int64_t>(manifest.part(shard->part).shards.size());
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

BuildClaim::BuildClaim(const OutputFolder& folder) : folder_(folder), journal_(folder.path()) {}

BuildClaim::~BuildClaim() {
  if (!journal_.exists()) return;
  try {
    std::error_code ignored;
    fs::remove(folder_.spool(), ignored);
    fs::remove(io::partial_path(folder_.spool()), ignored);
    const std::vector<std::string> names = names_in(folder_.path());
    const bool more = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name != "build.journal" && journal_.names(name);
    });
    if (!more) journal_.remove();
  } catch (const std::exception&) {
    // The journal names the remaining files; the next build removes them.
  }
}

void BuildClaim::refuse_foreign(const Manifest* old) const {
  std::vector<std::string> foreign;
  for (const std::string& name : names_in(folder_.path())) {
    if (of_a_build(name) && !journal_.names(name) && (old == nullptr || !in_manifest(*old, name)))
      foreign.push_back(name);
  }
  if (foreign.empty()) return;
  throw input_error("data build", folder_.path(), " holds ", foreign[0],
                    foreign.size() > 1 ? str_cat(" and ", foreign.size() - 1, " more files") : "",
                    ", named like a file of a build, but no journal or manifest lists ",
                    foreign.size() > 1 ? "them" : "it", "; nothing was touched: choose another --out, or move ",
                    foreign.size() > 1 ? "them" : "it", " away");
}

void BuildClaim::refuse_replaced(const Manifest& old) const {
  for (const Part part : kParts) {
    const auto& shards = old.part(part).shards;
    for (size_t s = 0; s < shards.size(); ++s) {
      const std::string path = folder_.at(shards[s].file);
      std::error_code error;
      // The interrupted build has already checked the files that its journal names.
      if (!fs::exists(fs::symlink_status(path, error)) || journal_.names(shards[s].file)) continue;
      const auto index = static_cast<int64_t>(s);
      if (ShardReader::accepts({.path = path, .manifest = old, .part = part, .index = index})) continue;
      const ShardIdentity expected{std::string(name_of(part)), index, shards[s].digest};
      throw input_error("data build", path, " is not the shard that the manifest in its folder lists (",
                        old.old_form() ? "" : str_cat(expected.text(), ", "), shards[s].bytes,
                        " bytes), but another or a damaged file; nothing was touched: move that file away, or ",
                        "choose another --out");
    }
  }
}

void BuildClaim::remove_dataset(const Manifest& old) {
  // The journal names the shards before the manifest is removed. Otherwise, after a kill between the two steps, neither
  // a journal nor a manifest would name the shards.
  for (const Part part : kParts) journal_.name_shards(part, static_cast<int64_t>(old.part(part).shards.size()));
  fs::remove(folder_.at("manifest.json"));
  io::sync_directory(folder_.path());
  remove_unfinished();
}

void BuildClaim::remove_unfinished() {
  // The copy of standard input is kept, since this build reads it.
  remove_named([](const std::string& name) { return name == "stdin.spool"; });
  journal_.start_over();
}

void BuildClaim::finish() {
  if (!journal_.exists()) return;
  remove_named([](const std::string& name) { return name.ends_with(".h5"); });
  journal_.remove();
}

void BuildClaim::remove_named(const std::function<bool(const std::string&)>& keep) {
  for (const std::string& name : names_in(folder_.path())) {
    if (name != "build.journal" && journal_.names(name) && !keep(name)) fs::remove(folder_.at(name));
  }
}

Manifest manifest_to_replace(const OutputFolder& folder) {
  Manifest manifest;
  try {
    manifest = read_manifest(folder.path());
  } catch (const Error& e) {
    throw input_error("data build", folder.at("manifest.json"),
                      " is not the manifest of a dataset that can be replaced (", text_of(e),
                      "); nothing was touched: choose another --out, or move that file away");
  }
  for (const Part part : kParts) {
    const auto& shards = manifest.part(part).shards;
    for (size_t s = 0; s < shards.size(); ++s) {
      if (shards[s].file == shard_file(part, static_cast<int64_t>(s))) continue;
      throw input_error("data build", folder.at("manifest.json"), " names a shard ", printable(shards[s].file),
                        ", expected ", shard_file(part, static_cast<int64_t>(s)), ": not a valid manifest; nothing",
                        " was touched: choose another --out, or move the manifest away");
    }
  }
  return manifest;
}

}  // namespace ashlar::data
