#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "launch/watch/rank_page.h"
#include "launch/watch/thread_watch.h"

namespace ashlar::watch {

/// Detects a thread of this process that waits for a file system: the same call on the same file, without progress in
/// bytes, for twice the polling interval. Opens files of /proc for new threads only. For use by one thread.
class FileStallWatch {
 public:
  FileStallWatch();
  FileStallWatch(const FileStallWatch&) = delete;
  FileStallWatch& operator=(const FileStallWatch&) = delete;
  ~FileStallWatch();

  /// Returns the call that has lasted longest; its `since_ms` is 0 if there is none. Reads /proc again if the last time
  /// was `every_ms` ago.
  const FileStall& look(int64_t now_ms, int64_t every_ms = 1000);
  /// Call it after sending a signal to the threads. The work of their handlers, e.g. loading unwind tables, then does
  /// not count as progress.
  void interrupted();

 private:
  struct Thread {
    std::string name;              ///< empty: not a thread of this program
    int looks = 0;                 ///< attempts to read the name, which a thread sets after its start
    int syscall = -1, bytes = -1;  ///< its files of /proc
    SystemCall call;               ///< the current call and its file
    std::string in_call;           ///< the line of /proc for it; empty if not in a call on a file
    std::string moved;             ///< bytes read and written so far
    int64_t since_ms = 0;          ///< start of the current call
    int excused = 0;               ///< checks in which it may be returning from a signal
    bool seen = false;
  };
  void list();
  void begin(pid_t id, Thread& thread) const;

  DIR* const tasks_;
  uint64_t links_ = 0;
  int64_t looked_ms_ = 0;
  std::map<pid_t, Thread> threads_;
  FileStall longest_;
};

/// The stall of a rank whose watch thread is running; null if there is none.
const FileStall* stall_of(const RankPage& page, int64_t now_ms);
/// "its saver thread is in fsync of /runs/a/x for 62 s".
std::string describe_stall(const FileStall& stall, int64_t now_ms);
/// Describes the ranks of this machine that have waited for at least `longer_ms`: "[rank 2 of 4 on node7] its saver
/// thread is ...; 3 more on this machine wait too". Empty if there are none.
std::string describe_stalls(std::span<const RankPage> pages, int64_t now_ms, int64_t longer_ms);

}  // namespace ashlar::watch
