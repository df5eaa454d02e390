#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "core/io/posix_file.h"

namespace ashlar::training {

/// The process that has locked a directory, as recorded in the directory's lock file.
struct LockHolder {
  std::string host;
  int64_t pid = 0;
  uint64_t started = 0;   ///< start of the process, in clock ticks since boot
  std::string boot;       ///< boot id of that machine (/proc/sys/kernel/random/boot_id)
  std::string pid_space;  ///< PID namespace in which `pid` is valid
  std::string since;      ///< time of acquisition, UTC, e.g. 2026-03-01 12:00:00
  std::string nonce;      ///< random, new for each acquisition; empty if an older version wrote the file
  std::string launch;     ///< id of the `ashlar launch` that started the process; empty if there is none
  bool operator==(const LockHolder&) const = default;
};
LockHolder this_process();  ///< describes this process, with a new nonce
std::string to_text(const LockHolder& holder);
std::optional<LockHolder> parse_holder(const std::string& text);
/// Returns "process 4711 on node7 since 2026-03-01 12:00:00 UTC".
std::string describe(const LockHolder& holder);

/// Whether the holder of a lock is alive, as far as the process `self` can determine.
enum class Liveness { kAlive, kDead, kUnknown };
Liveness liveness_of(const LockHolder& holder, const LockHolder& self);

/// Exclusive lock on a directory, held from construction to destruction. The lock is flock on DIR/.lock. On a file
/// system without flock, the lock is a file DIR/.lock.held that only one process can create; a killed process leaves
/// this file behind. The next process then decides by host, boot id and process id whether the creator is dead, and
/// starts only if it is certain of that. Each of the two files names the process that owns the directory.
///   Locks may be unreliable: some file systems grant flock on one file to several machines at once. Therefore the
/// owner named in the file counts too. A process that gets the lock is refused if the file names another owner that is
/// alive. If the process cannot decide whether that owner is alive (another machine, a container), it watches for a
/// while whether the owner still writes. An owner checks before each write that the file still names it (`check`).
class DirectoryLock {
 public:
  using FileLock = int (*)(int fd, int operation);  ///< flock, or a substitute in tests
  using LogLine = std::function<void(const std::string& line)>;
  struct Args {
    std::filesystem::path dir;
    FileLock file_lock;
    std::string watched;                    ///< name of the file in `dir` that a run appends to at each step
    double watch_seconds = 30;              ///< how long to watch an owner that may be dead
    double former_seconds = 25;             ///< longest wait for a rank of the launch's previous attempt to end
    LogLine log_line = [](const auto&) {};  ///< receives a line about each of these waits
  };
  static constexpr const char* kFile = ".lock";
  static constexpr const char* kHeldFile = ".lock.held";

  /// Locks `dir`. Input error if another process holds the lock (the text names the process if it is known), or if
  /// `dir` is not writable. If the holder is a rank of an earlier attempt of the same `ashlar launch --restarts`, first
  /// waits up to Args::former_seconds for that rank to end.
  explicit DirectoryLock(Args args);
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

  /// Returns a line for the log if the directory is held without flock; otherwise an empty text.
  const std::string& note() const { return note_; }
  /// Sets the new path after the directory was renamed. The lock files move with the directory.
  void moved(std::filesystem::path dir);
  /// Input error if the directory is no longer at its path, or if another process has taken it over. Creates the lock
  /// file again if it was removed. Costs a few system calls; thread-safe.
  void check();

 private:
  void acquire(const Args& args);
  bool acquire_file_lock(FileLock file_lock);  ///< returns false and sets errno if flock is not supported
  void settle_owner(const Args& args);  ///< called with flock held: replaces the owner named in the file, or throws
  void watch_owner(const Args& args, const std::string& text, const std::string& owner) const;
  void check_place() const;
  void make_lock_file_again();
  std::filesystem::path text_file() const { return dir_ / (held_file_ ? kHeldFile : kFile); }
  void acquire_held_file(const std::string& why);
  void remove_dead_holder();  ///< removes .lock.held if its creator is dead, otherwise throws

  std::filesystem::path dir_;
  FileLock file_lock_;
  const LockHolder self_;
  int fd_ = -1;
  int dir_fd_ = -1;                          ///< descriptor of the directory, valid also after a rename
  bool text_ours_ = false;                   ///< true once the lock file names this process
  std::optional<io::FileStamp> read_stamp_;  ///< stamp of the lock file when `check` last found our nonce in it
  std::mutex checking_;                      ///< guards calls from the run's thread and from the thread of a save
  bool held_file_ = false;
  std::string note_;
};

}  // namespace ashlar::training
