#include "launch/commands/train_run.h"

#include <filesystem>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "launch/training/directory_lock.h"
#include "launch/training/run_directory.h"
#include "parallel/checkpoint/find.h"

namespace ashlar::launch {
namespace {

namespace fs = std::filesystem;

/// True if a directory is a run directory: it has a configuration and another file that only runs write.
bool is_run_directory(const fs::path& dir) {
  const training::RunDirectory run(dir);
  std::error_code none;
  if (!fs::is_regular_file(run.config(), none)) return false;
  return fs::exists(run.metrics(), none) || fs::is_directory(checkpoint::checkpoints_dir(dir), none) ||
         fs::exists(dir / training::DirectoryLock::kFile, none);
}

/// Returns the run directory that `path` names, directly or by its config.toml; an empty path for any other file.
fs::path run_directory_of(const fs::path& path) {
  std::error_code none;
  if (fs::is_directory(path, none)) {
    if (is_run_directory(path)) return (path / "").parent_path();  // without a trailing slash
    throw input_error("train", printable(path.string()),
                      ": expected a configuration file, or the directory of a run (config.toml with metrics.jsonl or "
                      "checkpoints/ beside it), got another directory; give the path of a TOML file");
  }
  if (path.filename() != training::RunDirectory("").config()) return {};
  const fs::path dir = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return is_run_directory(dir) ? dir : fs::path();
}

}  // namespace

config::RawConfig read_run_config(const std::string& path, const std::vector<std::string>& overrides, int64_t ranks,
                                  Log& log) {
  const fs::path dir = run_directory_of(path);
  if (dir.empty()) return config::read_config(path, overrides);
  config::RawConfig raw = config::read_config(training::RunDirectory(dir).config().string(), overrides);
  const std::string written = raw.run_dir();
  std::error_code none;
  const bool moved = !fs::equivalent(written, dir, none);
  const std::string here = dir == "." ? fs::absolute(dir).lexically_normal().parent_path().string() : dir.string();
  raw.found_in_run(moved ? here : written, ranks);
  if (moved && !raw.overridden("run.dir"))
    log.info(str_cat("the run in ", escaped(here), ", started as ", escaped(written),
                     ", continues in its current directory"));
  return raw;
}

}  // namespace ashlar::launch
