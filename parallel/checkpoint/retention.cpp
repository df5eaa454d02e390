#include "parallel/checkpoint/retention.h"

#include <sys/stat.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/base/error_text.h"
#include "core/io/posix_file.h"
#include "parallel/checkpoint/partial.h"

namespace ashlar::checkpoint {
namespace {

/// Returns the size, inode and times of every file in the directory, as text. The text changes when a file is written
/// or replaced.
std::string stamp_of(const std::filesystem::path& directory) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    struct stat s {};
    if (::stat(at->path().c_str(), &s) != 0) continue;
    files.push_back(str_cat(at->path().filename().string(), " ", s.st_size, " ", s.st_ino, " ", s.st_mtim.tv_sec, ".",
                            s.st_mtim.tv_nsec, " ", s.st_ctim.tv_sec, ".", s.st_ctim.tv_nsec, "\n"));
  }
  std::sort(files.begin(), files.end());
  std::string all;
  for (const std::string& file : files) all += file;
  return all;
}

}  // namespace

void Retention::trust(const Found& checkpoint) { trusted_.push_back(checkpoint); }

void Retention::start(int64_t step) {
  if (keep_ == 0) return;
  next_ = step;
  collect();
}

void Retention::collect() {
  if (job_.started()) {
    if (!job_.ended()) return;
    job_.join();
  }
  if (next_ < 0) return;
  job_.start([this, step = std::exchange(next_, -1),
              trusted = std::exchange(trusted_, {})](const BackgroundJob::Cancelled& cancelled) {
    for (const Found& checkpoint : trusted) known_[checkpoint.path] = {.stamp = stamp_of(checkpoint.path)};
    work(step, cancelled);
  });
}

Retention::Report Retention::poll() {
  collect();
  if (job_.started()) return {};  // a pass is still running
  return std::exchange(report_, {});
}

Retention::Report Retention::wait() {
  while (job_.started() || next_ >= 0) {
    if (job_.started()) job_.join();
    collect();
  }
  return std::exchange(report_, {});
}

bool Retention::is_good(const Found& checkpoint, const BackgroundJob::Cancelled& cancelled) {
  const std::string stamp = stamp_of(checkpoint.path);
  Known& known = known_[checkpoint.path];
  if (known.stamp == stamp) return known.damage.empty();
  known.damage.clear();
  try {
    verify(checkpoint.path, cancelled);
  } catch (const Error& problem) {
    known.damage = problem.what();
  }
  if (cancelled()) return false;
  known.stamp = stamp;
  if (!known.damage.empty()) {
    report_.warnings.push_back(str_cat("checkpoint ", printable(checkpoint.path.string()),
                                       " is damaged and does not count towards checkpoint.keep: ", known.damage));
  }
  return known.damage.empty();
}

void Retention::work(int64_t step, const BackgroundJob::Cancelled& cancelled) {
  try {
    std::vector<Found> found = list(run_dir_);
    std::erase_if(found, [&](const Found& f) { return f.step > step; });
    std::erase_if(known_, [&](const auto& known) {
      return std::none_of(found.begin(), found.end(), [&](const Found& f) { return f.path == known.first; });
    });
    // 1. keep = the number of checkpoints that stay: the newest ones, back to the keep_-th valid one. Damaged ones
    // among them stay too.
    size_t keep = 0;
    int64_t good = 0;
    while (keep < found.size() && good < keep_) {
      good += is_good(found[found.size() - 1 - keep], cancelled) ? 1 : 0;
      if (cancelled()) return;
      ++keep;
    }
    if (good < keep_) return;
    // 2. Remove the older checkpoints, oldest first, so that the remaining ones have no gap if the process is killed.
    for (size_t i = 0; i + keep < found.size() && !cancelled(); ++i) {
      remove_checkpoint(found[i].path);
      report_.removed.push_back(found[i].path);
    }
  } catch (const Error& problem) {
    // An error costs disk space but does not end the run.
    report_.warnings.push_back(str_cat("old checkpoints could not be removed: ", text_of(problem)));
  }
}

}  // namespace ashlar::checkpoint
