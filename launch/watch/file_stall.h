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

/// Sees that a thread of this process waits for a file system: the same call on the same file, no byte further, for
/// twice as long as it looks away. Opens files of /proc for threads that are new, otherwise nothing. One thread.
class FileStallWatch {
 public:
  FileStallWatch();
  FileStallWatch(const FileStallWatch&) = delete;
  FileStallWatch& operator=(const FileStallWatch&) = delete;
  ~FileStallWatch();

  /// The call that lasts longest; `since_ms` = 0 when there is none. Looks again `every_ms` after the last time.
  const FileStall& look(int64_t now_ms, int64_t every_ms = 1000);
  /// The threads have been sent a signal: what they do for it, as to load unwind tables, is no end of their calls.
  void interrupted();

 private:
  struct Thread {
    std::string name;              ///< empty: none of ours
    int looks = 0;                 ///< in search of a name, which a thread gives itself
    int syscall = -1, bytes = -1;  ///< its files of /proc
    CallSight call;                ///< and its file
    std::string in_call;           ///< all words of it; empty in none on a file
    std::string moved;             ///< bytes read and written so far
    int64_t since_ms = 0;          ///< both are the same since then
    int excused = 0;               ///< looks at which it may be on its way back from a signal
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

/// The stall of a rank whose watch is awake; null when there is none.
const FileStall* stall_of(const RankPage& page, int64_t now_ms);
/// "its saver thread is in fsync of /runs/a/x for 62 s".
std::string describe_stall(const FileStall& stall, int64_t now_ms);
/// "[rank 2 of 4 on node7] its saver thread is ...; 3 more ranks of this machine wait likewise" of the ranks of this
/// machine that wait for `longer_ms` and more; empty when none does.
std::string describe_stalls(std::span<const RankPage> pages, int64_t now_ms, int64_t longer_ms);

}  // namespace ashlar::watch
