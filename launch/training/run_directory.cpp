#include "launch/training/run_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"
#include "parallel/checkpoint/find.h"

namespace ashlar::training {

namespace fs = std::filesystem;

namespace {

// Renames `from` to `to`, which must not exist. Returns 0 or errno. On a file system without RENAME_NOREPLACE, the
// rename may replace a file that another process creates at `to` in the meantime.
int rename_to_free(const fs::path& from, const fs::path& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (fs::exists(to)) return EEXIST;
  return std::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

bool holds_more_than_locks(const fs::path& dir) {
  std::error_code error;
  for (fs::directory_iterator at(dir, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    if (!at->path().filename().string().starts_with(DirectoryLock::kFile)) return true;
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw io::system_error("run", "read directory", dir, error.value());
  return false;
}

/// True if `dir` equals `below` or is one of its parents. Both paths must be canonical.
bool holds(const fs::path& dir, const fs::path& below) {
  return std::mismatch(dir.begin(), dir.end(), below.begin(), below.end()).first == dir.end();
}

/// True if `path`, which leads to `dir`, passes through an entry of `dir` on the way, as DIR/checkpoints/.. does. `dir`
/// must be canonical.
bool leads_through(const fs::path& path, const fs::path& dir) {
  fs::path so_far = path.is_relative() ? "." : "";
  for (const fs::path& part : path) {
    if (part != "." && part != ".." && !so_far.empty() && !part.empty() && holds(dir, fs::canonical(so_far)))
      return true;
    so_far /= part;
  }
  return false;
}

}  // namespace

std::string RunDirectory::lock(const DirectoryLock::LogLine& log_line) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error || !fs::is_directory(path_)) {
    throw input_error("run", "cannot create the run directory ", path_.string(), ": ",
                      error ? error.message() : "a file of that name exists",
                      "; set run.dir to a directory you may write");
  }
  lock_ = std::make_unique<DirectoryLock>(DirectoryLock::Args{.dir = path_,
                                                              .file_lock = file_lock_,
                                                              .watched = metrics().filename().string(),
                                                              .watch_seconds = watch_seconds_,
                                                              .log_line = log_line});
  return lock_->note();
}

fs::path RunDirectory::set_aside() {
  ASHLAR_CHECK(lock_ != nullptr, "the run directory must be locked first");
  if (!holds_more_than_locks(path_)) return {};
  check_can_be_set_aside();
  const fs::path name = path_.has_filename() ? path_ : path_.parent_path();
  // If the path is a symbolic link, the link is resolved: the new directory is created beside the target of the link,
  // on the same file system, and the link stays. A path with . or .. is resolved too, because it may be invalid between
  // the two renames.
  const bool dots = std::ranges::any_of(name, [](const fs::path& part) { return part == "." || part == ".."; });
  const fs::path clean = dots || fs::is_symlink(name) ? fs::canonical(name) : name;
  // The new directory is locked before it is renamed to the path of the run, so that no other process can lock it
  // first. The lock stays with the directory when the directory is renamed.
  const fs::path prepared = str_cat(clean.string(), ".new-", getpid());
  std::error_code none;
  const auto cannot_rename = [&](const fs::path& from, const fs::path& to, int why, std::string_view advice) {
    fs::remove_all(prepared, none);
    return input_error("run", "cannot rename ", from.string(), " to ", to.string(), ": ", std::strerror(why), advice);
  };
  fs::create_directory(prepared, none);
  if (none)
    throw input_error("run", "cannot create ", prepared.string(), ": ", none.message(),
                      "; make the directory that contains it writable, or choose another run.dir");
  auto lock = std::make_unique<DirectoryLock>(DirectoryLock::Args{.dir = prepared, .file_lock = file_lock_});
  fs::path aside;
  int why = EEXIST;
  for (int n = 1; why == EEXIST || why == ENOTEMPTY; ++n) {
    aside = str_cat(clean.string(), ".old-", n);
    why = rename_to_free(clean, aside);
  }
  if (why != 0) throw cannot_rename(clean, aside, why, str_cat("; move ", clean.filename().string(), " by hand"));
  // Another process may create a directory at the path of the run at this point. If that directory is empty, the rename
  // replaces it with the directory that this process has locked; otherwise the rename fails.
  if (std::rename(prepared.c_str(), clean.c_str()) != 0) {
    why = errno;
    rename_to_free(aside, clean);
    throw cannot_rename(prepared, clean, why, "; run the command again");
  }
  lock->moved(clean);
  lock_->moved(aside);
  lock_ = std::move(lock);
  return aside;
}

void RunDirectory::check_can_be_set_aside() const {
  if (!holds_more_than_locks(path_)) return;
  const fs::path dir = fs::canonical(path_), here = fs::current_path();
  if (leads_through(path_, dir)) {
    throw input_error(
        "run.dir", "--restart renames the run directory, so its path may not lead through a folder inside ",
        "it, as DIR/checkpoints/.. does, got ", printable(path_.string()), "; set run.dir = ", printable(dir.string()));
  }
  if (!holds(dir, here)) return;
  const bool root = dir == dir.root_path();
  throw input_error("run.dir",
                    "--restart renames the run directory, so it must not be the current directory or one of its ",
                    "parents: got ", printable(path_.string()),
                    root          ? ", which is the root directory; choose another run.dir"
                    : dir == here ? ", which is the current directory"
                                  : ", which contains the current directory",
                    root ? "" : "; change to another directory first (cd), or choose another run.dir");
}

void RunDirectory::check_owned() const {
  ASHLAR_CHECK(lock_ != nullptr, "the run directory must be locked first");
  lock_->check();
}

std::optional<int64_t> RunDirectory::committed() const {
  std::error_code error;
  if (!fs::exists(committed_file(), error)) return std::nullopt;
  try {
    constexpr int64_t kMostBytes = 4096;
    const auto json =
        io::try_parse_json(io::read_text_file(committed_file(), kMostBytes), io::JsonKeys::kUnique).value();
    const auto step = json.at("committed_step").get<int64_t>();
    return json.at("committed_step").is_number_integer() && step >= 0 ? step : -1;
  } catch (const std::exception&) {
    return -1;  // the file exists, so a checkpoint was committed
  }
}

void RunDirectory::record_committed(int64_t step) const {
  io::write_file_atomically(committed_file(), str_cat("{\"committed_step\":", step, "}\n"));
}

void RunDirectory::check_none_lost() const {
  const std::optional<int64_t> lost = committed();
  if (!lost) return;
  const fs::path folder = checkpoint::checkpoints_dir(path_);
  const std::string name = *lost < 0 ? "a checkpoint" : str_cat("checkpoint ", checkpoint::directory_name(*lost));
  std::error_code error;
  const char* state = fs::exists(folder, error)                           ? " contains no checkpoint"
                      : fs::is_symlink(fs::symlink_status(folder, error)) ? " is a dangling link"
                                                                          : " does not exist";
  throw damaged_error("run", name, " is missing: ", committed_file().filename().string(), " records it, but ",
                      printable(folder.string()), state,
                      "; restore the checkpoint, mount its file system, or start over with --restart");
}

void RunDirectory::check_visible() const {
  if (fs::exists(path_ / DirectoryLock::kFile)) return;
  throw input_error("run", "this rank cannot see the run directory ", fs::absolute(path_).string(),
                    ", which rank 0 has opened; set run.dir to a directory that all nodes share");
}

}  // namespace ashlar::training
