#include "launch/commands/train_from.h"

#include "core/base/error.h"
#include "launch/hf/hf_checkpoint.h"
#include "parallel/checkpoint/reader.h"

namespace ashlar::launch {
namespace {

namespace fs = std::filesystem;

/// Returns the last component of a path, which may have a trailing slash.
std::string name_of_folder(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

/// Throws an input error unless the import at `out` is complete and comes from `hf_directory`.
void check_imported(const fs::path& hf_directory, const fs::path& out) {
  const checkpoint::CheckpointReader reader(out);
  const auto source = reader.metadata().find(hf::kSourceKey);
  const bool same = source != reader.metadata().end() && source->second == hf::source_digest(hf_directory);
  if (same && fs::exists(out / "config.toml")) return;
  throw input_error("train", out.string(), ": expected a complete import of ", hf_directory.string(), ", got ",
                    same ? "an incomplete one" : "the import of another model",
                    "; choose another run.dir, or remove this directory");
}

}  // namespace

TrainFrom train_from(const TrainFromArgs& args, bool import, Log& log) {
  const fs::path& hf_directory = args.hf_directory;
  constexpr std::string_view kRunDir = "run.dir=";
  std::string run_dir;
  for (const std::string& word : args.overrides)
    if (word.starts_with(kRunDir)) run_dir = word.substr(kRunDir.size());
  TrainFrom from;
  if (run_dir.empty()) {
    run_dir = "runs/" + name_of_folder(hf_directory);
    from.overrides.push_back(str_cat(kRunDir, run_dir));
  }
  while (run_dir.size() > 1 && run_dir.ends_with('/')) run_dir.pop_back();
  const fs::path out = run_dir + ".import";
  from.config = (out / "config.toml").string();
  if (!import) return from;
  if (std::error_code ignored; fs::exists(out, ignored)) {
    check_imported(hf_directory, out);
    return from;
  }
  const hf::ImportReport report = hf::import_to_checkpoint(hf_directory, out, {.ignored_keys = args.ignored_keys});
  for (const std::string& note : report.config.notes) log.info("note: " + note);
  log.info(hf::summary(report, out));
  return from;
}

}  // namespace ashlar::launch
