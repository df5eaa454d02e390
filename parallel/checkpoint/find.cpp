#include "parallel/checkpoint/find.h"

#include <algorithm>
#include <string_view>
#include <system_error>

#include "absl/strings/str_format.h"
#include "core/base/error_text.h"
#include "core/io/posix_file.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/partial.h"
#include "parallel/checkpoint/ranking.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::checkpoint {
namespace {

/// Returns N if `name` is "step-N" with eight digits or more, followed by `suffix`; nullopt for any other name.
std::optional<int64_t> step_of(std::string_view name, std::string_view suffix) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix) || !name.ends_with(suffix)) return std::nullopt;
  const auto step = parse_number<int64_t>(name.substr(kPrefix.size(), name.size() - kPrefix.size() - suffix.size()));
  if (!step || *step < 0 || str_cat(directory_name(*step), suffix) != name) return std::nullopt;
  return step;
}

/// Returns the entries of a checkpoint folder whose names are step-N + suffix, ordered by step.
std::vector<Found> entries(const std::filesystem::path& folder, std::string_view suffix) {
  std::vector<Found> found;
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return found;
  std::filesystem::directory_iterator at(folder, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    if (const auto step = step_of(at->path().filename().string(), suffix)) found.push_back({at->path(), *step});
  }
  if (error) throw io::system_error("checkpoint", "read directory", folder, error.value());
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.step < b.step; });
  return found;
}

std::vector<Found> list_folder(const std::filesystem::path& folder) {
  std::vector<Found> found = entries(folder, "");
  // If a process is killed while it replaces a checkpoint, the complete old checkpoint can be left under the name
  // step-N.replaced. It counts only if there is no step-N.
  for (const Found& old : entries(folder, kReplacedSuffix)) {
    const auto at = std::lower_bound(found.begin(), found.end(), old.step,
                                     [](const Found& f, int64_t step) { return f.step < step; });
    if (at == found.end() || at->step != old.step) found.insert(at, old);
  }
  return found;
}

/// The result of look_up for a user's path. If the path is a checkpoint, `checkpoint` is that path; otherwise `found`
/// lists the checkpoints in the run directory or checkpoint folder that the path names.
struct Named {
  std::optional<std::filesystem::path> checkpoint;
  std::vector<Found> found;
};

Named look_up(const std::filesystem::path& given) {
  const std::filesystem::path path = resolve_best(given);
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  if (error) throw io::system_error("checkpoint", "read", path, error.value());
  if (!there) {
    throw input_error("checkpoint", "there is no ", printable(path.string()), "; give a checkpoint or a run directory");
  }
  if (std::filesystem::exists(path / kManifestFile, error)) return {.checkpoint = path};
  for (const std::filesystem::path& folder : {checkpoints_dir(path), path}) {
    if (std::vector<Found> found = list_folder(folder); !found.empty()) return {.found = std::move(found)};
  }
  throw input_error("checkpoint", "expected a checkpoint (a directory with ", kManifestFile,
                    ") or a run directory with checkpoints/step-*, got ", printable(path.string()),
                    "; give the path of a checkpoint or of a run directory");
}

Error all_damaged(const std::vector<Found>& found) {
  return damaged_error("checkpoint", "expected a valid checkpoint in ",
                       printable(found.front().path.parent_path().string()), ", but all ", found.size(),
                       " are damaged; restore one from a copy, or move that directory away to start over");
}

void check_has_manifest(const std::filesystem::path& path) {
  std::error_code error;
  const auto manifest = std::filesystem::status(path / kManifestFile, error);
  if (manifest.type() == std::filesystem::file_type::not_found && std::filesystem::is_directory(path, error))
    throw damaged_error("checkpoint", printable(path.string()), " has no ", kManifestFile, "; use another checkpoint");
  require_file_of_checkpoint(path / kManifestFile);
}

/// Returns the newest checkpoint that can be opened and for which `check` does not throw a damaged-data error. `rank_0`
/// lists the checkpoints, oldest first, on rank 0; the lists of other ranks are ignored. Called by all ranks. `check`
/// must succeed on all ranks or throw the same error on all ranks.
std::optional<Found> newest_good_of(const std::vector<Found>& rank_0, Log& log, comm::ControlPlane& ranks,
                                    const std::function<void(CheckpointReader&)>& check) {
  std::vector<std::filesystem::path> paths;
  for (const Found& f : rank_0) paths.push_back(f.path);
  std::vector<Found> found;
  for (const std::filesystem::path& path : broadcast_paths(ranks, paths)) {
    const std::string name = path.filename().string();
    const auto step = step_of(name, "");
    found.push_back({path, step ? *step : step_of(name, kReplacedSuffix).value()});
  }
  for (auto at = found.rbegin(); at != found.rend(); ++at) {
    try {
      comm::try_on_first_rank(ranks, [&] { check_has_manifest(at->path); });
      CheckpointReader reader = open_checkpoint(at->path, ranks);
      check(reader);
      return *at;
    } catch (const Error& problem) {
      if (problem.code() != ExitCode::kDamagedData) throw;
      if (ranks.rank() != 0) continue;
      log.warn(str_cat("checkpoint ", printable(at->path.string()), " is damaged and skipped: ", problem.what()));
    }
  }
  if (!found.empty()) comm::try_on_all_ranks(ranks, [&] { throw all_damaged(found); });
  return std::nullopt;
}

/// Calls newest_good_of with a `check` in which each rank verifies an equal share of the bytes.
std::optional<Found> newest_good_of(const std::vector<Found>& rank_0, Log& log, comm::ControlPlane& ranks) {
  return newest_good_of(rank_0, log, ranks, [&](CheckpointReader& reader) {
    comm::try_on_all_ranks(ranks, [&] { reader.verify({.rank = ranks.rank(), .size = ranks.size()}); });
  });
}

/// Rank 0 looks up the user's path. All ranks get the same `checkpoint`; only rank 0 gets `found`.
Named look_up(const std::filesystem::path& path, comm::ControlPlane& ranks) {
  Named named;
  comm::try_on_first_rank(ranks, [&] { named = look_up(path); });
  if (comm::broadcast_value(ranks, named.checkpoint.has_value(), 0))
    named.checkpoint = broadcast_paths(ranks, {named.checkpoint.value_or("")}).front();
  return named;
}

std::vector<Found> list_for_all(const std::filesystem::path& run_dir, comm::ControlPlane& ranks) {
  std::vector<Found> found;
  comm::try_on_first_rank(ranks, [&] { found = list(run_dir); });
  return found;
}

}  // namespace

void verify(const std::filesystem::path& path, const std::function<bool()>& cancelled) {
  check_has_manifest(path);
  CheckpointReader(path).verify({}, cancelled);
}

std::string directory_name(int64_t step) { return absl::StrFormat("step-%08d", step); }

std::filesystem::path checkpoints_dir(const std::filesystem::path& run_dir) { return run_dir / "checkpoints"; }

std::vector<Found> list(const std::filesystem::path& run_dir) {
  const std::filesystem::path folder = checkpoints_dir(run_dir);
  std::error_code error;
  static_cast<void>(std::filesystem::status(folder, error));
  // If the folder is missing, the run has no checkpoints. If the folder cannot be read, that is an error.
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw io::system_error("checkpoint", "read directory", folder, error.value());
  return list_folder(folder);
}

std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& run_dir, Log& log) {
  const std::filesystem::path folder = checkpoints_dir(run_dir);
  std::vector<std::filesystem::path> removed;
  const auto remove_ours = [&](const std::filesystem::path& path) {
    if (is_ours(path)) {
      remove_tree(path);
      removed.push_back(path);
    } else {
      log.warn(str_cat(printable(path.string()), " has the name of an unfinished or replaced checkpoint but no ",
                       kMarkerFile, ": this program did not write that directory and leaves it alone; move it away"));
    }
  };
  for (const Found& partial : entries(folder, kPartialSuffix)) remove_ours(partial.path);
  for (const Found& old : entries(folder, kReplacedSuffix)) {
    const std::filesystem::path final_path = folder / directory_name(old.step);
    std::error_code error;
    if (std::filesystem::exists(final_path, error)) {
      remove_ours(old.path);
    } else {
      rename_path(old.path, final_path);
    }
  }
  return removed;
}

std::optional<Found> newest_good(const std::filesystem::path& run_dir, Log& log, comm::ControlPlane& ranks) {
  return newest_good_of(list_for_all(run_dir, ranks), log, ranks);
}

std::optional<Found> load_newest_good(const LoadFoundArgs& args) {
  return newest_good_of(list_for_all(args.path, args.ranks), args.log, args.ranks, args.load);
}

std::filesystem::path load_resolved(const LoadFoundArgs& args) {
  comm::ControlPlane& ranks = args.ranks;
  const Named named = look_up(args.path, ranks);
  if (named.checkpoint) {
    CheckpointReader reader = open_checkpoint(*named.checkpoint, ranks);
    args.load(reader);
    return *named.checkpoint;
  }
  const auto found = newest_good_of(named.found, args.log, ranks, [&](CheckpointReader& reader) {
    comm::try_on_all_ranks(
        ranks, [&] { reader.verify({.rank = ranks.rank(), .size = ranks.size(), .beyond_weights = true}); });
    args.load(reader);
  });
  return found->path;
}

std::filesystem::path resolve(const std::filesystem::path& path, Log& log, comm::ControlPlane& ranks) {
  const Named named = look_up(path, ranks);
  return named.checkpoint ? *named.checkpoint : newest_good_of(named.found, log, ranks)->path;
}

std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& run_dir, Log& log,
                                                    comm::ControlPlane& ranks) {
  std::vector<std::filesystem::path> removed;
  comm::try_on_first_rank(ranks, [&] { removed = remove_leftovers(run_dir, log); });
  return broadcast_paths(ranks, removed);
}

std::vector<std::filesystem::path> broadcast_paths(comm::ControlPlane& ranks,
                                                   const std::vector<std::filesystem::path>& paths) {
  std::string text;
  for (const std::filesystem::path& path : paths) text += path.string() + '\0';  // paths contain no NUL
  text = comm::broadcast_text(ranks, text, 0);
  std::vector<std::filesystem::path> all;
  for (size_t at = 0; at < text.size(); at += all.back().native().size() + 1) all.emplace_back(text.c_str() + at);
  return all;
}

}  // namespace ashlar::checkpoint
