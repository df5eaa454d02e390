#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "core/io/posix_file.h"

namespace ashlar::training {

/// The holder of a directory, as its lock file names it.
struct LockHolder {
  std::string host;
  int64_t pid = 0;
  uint64_t started = 0;   ///< start of the process, in clock ticks since boot
  std::string boot;       ///< boot id of that machine
  std::string pid_space;  ///< PID namespace of its process id
  std::string since;      ///< UTC, e.g. 2026-03-01 12:00:00
  std::string nonce;      ///< random for each acquisition; empty: written by an older version
  std::string launch;     ///< id of the `ashlar launch` that started it; empty: none
  bool operator==(const LockHolder&) const = default;
};
LockHolder this_process();  ///< with a new nonce
std::string to_text(const LockHolder& holder);
std::optional<LockHolder> parse_holder(const std::string& text);
/// "process 4711 on node7 since 2026-03-01 12:00:00 UTC".
std::string describe(const LockHolder& holder);

/// State of the process that holds a lock, as far as `self` can determine it.
enum class Liveness { kAlive, kDead, kUnknown };
Liveness liveness_of(const LockHolder& holder, const LockHolder& self);

/// Holds a directory from construction to destruction; only one process can hold it at a time. The lock is flock on
/// DIR/.lock. On a file system without flock it is a file DIR/.lock.held that only one process can create. That file
/// stays after a kill. The next process then decides by host, boot id and process id whether the creator is alive, and
/// refuses if it cannot tell. Both files name the holder.
///   Locks may be unreliable: some file systems grant flock to every machine. Therefore the text of the file counts
/// too. A process that gets the lock but finds a live owner in the text is refused. If it cannot tell whether the owner
/// is alive (another machine, a container), it watches for a while whether the owner still writes. An owner checks
/// before each write that the text is still its own (`check`).
class DirectoryLock {
 public:
  using FileLock = int (*)(int fd, int operation);  ///< flock, or a substitute in tests
  using LogLine = std::function<void(const std::string& line)>;
  struct Args {
    std::filesystem::path dir;
    FileLock file_lock;
    std::string watched;                    ///< the file in `dir` that a run appends to at each step
    double watch_seconds = 30;              ///< how long an owner of unknown state is watched
    double former_seconds = 25;             ///< how long to wait for a rank of this launch's previous attempt
    LogLine log_line = [](const auto&) {};  ///< called before and after these waits
  };
  static constexpr const char* kFile = ".lock";
  static constexpr const char* kHeldFile = ".lock.held";

  /// Input error when another process holds `dir` (named if known), or when `dir` is not writable. Waits for a rank of
  /// an earlier attempt of the same `ashlar launch --restarts`, which is about to end.
  explicit DirectoryLock(Args args);
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

  /// One line for the log when the directory is held without flock; otherwise empty.
  const std::string& note() const { return note_; }
  /// Reports the new path of the directory after a rename. Lock files move with it.
  void moved(std::filesystem::path dir);
  /// Input error when the directory is no longer at its path, or when another process has taken it over. Creates the
  /// lock file again if it was removed. Costs a few system calls; thread-safe.
  void check();

 private:
  void acquire(const Args& args);
  bool acquire_file_lock(FileLock file_lock);  ///< false: not supported here
  void settle_owner(const Args& args);         ///< handles the owner named in the text when the lock is ours
  void watch_owner(const Args& args, const std::string& text, const std::string& owner) const;
  void check_place() const;
  void make_lock_file_again();
  std::filesystem::path text_file() const { return dir_ / (held_file_ ? kHeldFile : kFile); }
  void acquire_held_file(const std::string& why);
  void remove_dead_holder();  ///< after it the held file can be created

  std::filesystem::path dir_;
  FileLock file_lock_;
  const LockHolder self_;
  int fd_ = -1;
  int dir_fd_ = -1;                          ///< the directory, also after a rename
  bool text_ours_ = false;                   ///< our own text was written
  std::optional<io::FileStamp> read_stamp_;  ///< of the lock file when `check` last found our text in it
  std::mutex checking_;                      ///< the run's thread and that of a save
  bool held_file_ = false;
  std::string note_;
};

}  // namespace ashlar::training
