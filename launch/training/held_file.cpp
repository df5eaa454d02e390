#include "launch/training/held_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "launch/training/run_events.h"

namespace ashlar::training {

HeldFile::HeldFile(Args args) : args_(std::move(args)) {
  fd_ = open(args_.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0)
    throw input_error(args_.where, "cannot open ", args_.path.string(), ": ", std::strerror(errno),
                      "; make the run directory writable");
}

HeldFile::~HeldFile() {
  if (!held_.empty()) {
    try {
      if (args_.check) args_.check();
      flush();
    } catch (const std::exception&) {
      // Another process owns the file now, or memory is short. The entries are reported as lost below.
    }
  }
  lost_ += std::ssize(held_);
  if (lost_ > 0)
    args_.log.warn(
        to_line(EntriesLost{.path = args_.path, .entries = args_.entries, .count = lost_, .reason = reason_}));
  close(fd_);
}

void HeldFile::append(std::string entry) {
  if (args_.check) args_.check();
  if (held_bytes_ + entry.size() <= kMostHeldBytes) {
    held_bytes_ += entry.size();
    held_.push_back(std::move(entry));
  } else {
    ++lost_;
  }
  flush();
}

void HeldFile::flush() {
  const int64_t count = std::ssize(held_);
  while (!held_.empty()) {
    std::string& first = held_.front();
    const ssize_t n = write(fd_, first.data(), first.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      // The log may write to this file too, so that a message about the file comes after its state.
      const bool held_before = !reason_.empty();
      reason_ = std::strerror(n < 0 ? errno : ENOSPC);
      if (!held_before)
        args_.log.warn(to_line(EntriesHeldBack{.path = args_.path, .entries = args_.entries, .reason = reason_}));
      return;
    }
    held_bytes_ -= static_cast<size_t>(n);
    first.erase(0, static_cast<size_t>(n));
    if (first.empty()) held_.pop_front();
  }
  const std::string reason = std::exchange(reason_, {});
  if (reason.empty()) return;
  args_.log.info(to_line(EntriesCaughtUp{.path = args_.path, .entries = args_.entries, .count = count}));
  if (lost_ > 0)
    args_.log.warn(to_line(
        EntriesLost{.path = args_.path, .entries = args_.entries, .count = std::exchange(lost_, 0), .reason = reason}));
}

}  // namespace ashlar::training
