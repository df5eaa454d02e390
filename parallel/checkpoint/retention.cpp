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

void Retention::start(int64_t step, std::vector<int64_t> ranked) {
  if (keep_.newest == 0) return;
  next_ = {.step = step, .ranked = std::move(ranked)};
  collect();
}

void Retention::collect() {
  if (job_.started()) {
    if (!job_.ended()) return;
    job_.join();
  }
  if (!next_) return;
  job_.start([this, pass = *std::exchange(next_, std::nullopt),
              trusted = std::exchange(trusted_, {})](const BackgroundJob::Cancelled& cancelled) {
    for (const Found& checkpoint : trusted) known_[checkpoint.path] = {.stamp = stamp_of(checkpoint.path)};
    work(pass, cancelled);
  });
}

Retention::Report Retention::poll() {
  collect();
  if (job_.started()) return {};  // a pass is still running
  return std::exchange(report_, {});
}

Retention::Report Retention::wait() {
  while (job_.started() || next_) {
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

/// Returns the steps of the best valid checkpoints, at most keep_.best.
std::set<int64_t> Retention::best_of(const std::vector<Found>& found, const std::vector<int64_t>& ranked,
                                     const BackgroundJob::Cancelled& cancelled) {
  std::set<int64_t> best;
  for (const int64_t step : ranked) {
    if (std::ssize(best) == keep_.best || cancelled()) break;
    const auto at = std::find_if(found.begin(), found.end(), [&](const Found& f) { return f.step == step; });
    if (at != found.end() && is_good(*at, cancelled)) best.insert(step);
  }
  return best;
}

void Retention::work(const Pass& pass, const BackgroundJob::Cancelled& cancelled) {
  try {
    std::vector<Found> found = list(run_dir_);
    std::erase_if(found, [&](const Found& f) { return f.step > pass.step; });
    std::erase_if(known_, [&](const auto& known) {
      return std::none_of(found.begin(), found.end(), [&](const Found& f) { return f.path == known.first; });
    });
    // 1. keep = the number of checkpoints that stay: the newest ones, back to the last of the `newest` valid ones.
    // Damaged ones among them stay too.
    size_t keep = 0;
    int64_t good = 0;
    while (keep < found.size() && good < keep_.newest) {
      good += is_good(found[found.size() - 1 - keep], cancelled) ? 1 : 0;
      if (cancelled()) return;
      ++keep;
    }
    if (good < keep_.newest) return;
    const std::set<int64_t> best = best_of(found, pass.ranked, cancelled);
    // 2. Remove the older checkpoints, oldest first, so that the remaining ones have no gap if the process is killed.
    for (size_t i = 0; i + keep < found.size() && !cancelled(); ++i) {
      const int64_t step = found[i].step;
      if (best.contains(step) || (keep_.every > 0 && step % keep_.every == 0)) continue;
      remove_checkpoint(found[i].path);
      report_.removed.push_back(found[i].path);
    }
  } catch (const Error& problem) {
    // An error costs disk space but does not end the run.
    report_.warnings.push_back(str_cat("old checkpoints could not be removed: ", text_of(problem)));
  }
}

}  // namespace ashlar::checkpoint
