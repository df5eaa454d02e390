#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/io/posix_file.h"

namespace ashlar::training {

/// Who holds a directory: what its lock file says.
struct LockHolder {
  std::string host;
  int64_t pid = 0;
  uint64_t started = 0;   ///< the process, in clock ticks since its machine started
  std::string boot;       ///< since which start of that machine
  std::string pid_space;  ///< in which container its number counts
  std::string since;      ///< UTC, like 2026-03-01 12:00:00
  std::string nonce;      ///< random, another one each time a directory is taken; empty: of an older version
  std::string launch;     ///< the `ashlar launch` that has started it; empty: none
  bool operator==(const LockHolder&) const = default;
};
LockHolder this_process();  ///< with a new nonce
std::string to_text(const LockHolder& holder);
std::optional<LockHolder> parse_holder(const std::string& text);
/// "process 4711 on node7 since 2026-03-01 12:00:00 UTC".
std::string describe(const LockHolder& holder);

/// Whether a holder may still live, as `self` can tell.
enum class Liveness { kAlive, kDead, kUnknown };
Liveness liveness_of(const LockHolder& holder, const LockHolder& self);

/// A directory held by one process at a time, from construction to destruction, by flock on DIR/.lock. Where the file
/// system has no such locks, by a file DIR/.lock.held that only one process can make: it stays behind a killed process,
/// so that the next one judges by host, start of the machine and process number whether its maker lives, and refuses
/// when it cannot tell. Both files say who holds.
///   Locks may lie: some file systems grant flock to every machine that asks. So the text of the file decides, too. Who
/// gets the lock and finds an owner that lives is refused; of one that it cannot judge (another machine, a container)
/// it watches for a while whether that one still writes. An owner looks before each write whether the text is still its
/// own (`check`).
class DirectoryLock {
 public:
  using FileLock = int (*)(int fd, int operation);  ///< flock, or a test's stand-in
  using Say = std::function<void(const std::string& line)>;
  struct Args {
    std::filesystem::path dir;
    FileLock file_lock;
    std::string watched;           ///< the file in `dir` that a run writes to at each step
    double watch_seconds = 30;     ///< how long an owner that cannot be judged is watched
    double former_seconds = 25;    ///< how long a rank of this launch's last attempt may take to end
    Say say = [](const auto&) {};  ///< hears before and after that
  };
  static constexpr const char* kFile = ".lock";
  static constexpr const char* kHeldFile = ".lock.held";

  /// Input error when another process holds `dir` (named where known), or when it cannot be written. A rank of an
  /// earlier attempt of the same `ashlar launch --restarts` is waited for: it is about to end.
  explicit DirectoryLock(Args args);
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

  /// One line for the log when the directory is held in the second way; empty otherwise.
  const std::string& note() const { return note_; }
  /// The directory, lock files and all, has a new name.
  void moved(std::filesystem::path dir);
  /// Input error when the directory is no longer under its name, or when another process has taken it. Makes a lock
  /// file anew that somebody has removed. Some system calls; for any thread.
  void check();

 private:
  void take(const Args& args);
  bool take_file_lock(FileLock file_lock);  ///< false: not supported here
  void settle_owner(const Args& args);      ///< of whom the text tells although its lock is ours
  void watch_owner(const Args& args, const std::string& text, const std::string& owner) const;
  void check_place() const;
  void make_lock_file_again();
  std::filesystem::path text_file() const { return dir_ / (held_file_ ? kHeldFile : kFile); }
  void take_held_file(const std::string& why);
  void remove_dead_holder();  ///< then the held file can be tried again

  std::filesystem::path dir_;
  FileLock file_lock_;
  const LockHolder self_;
  int fd_ = -1;
  int dir_fd_ = -1;                          ///< the directory, wherever it is now
  bool text_ours_ = false;                   ///< what we are could be written
  std::optional<io::FileStamp> read_stamp_;  ///< of the text's file when `check` last read that it is ours
  std::mutex checking_;                      ///< a save's thread and the run's
  bool held_file_ = false;
  std::string note_;
};

}  // namespace ashlar::training
