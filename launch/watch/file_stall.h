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

/// Detects a thread of this process that waits for a file system: it stays in the same system call on the same file,
/// without reading or writing a byte, for twice the polling interval. Opens files of /proc for new threads only. For
/// use by one thread.
class FileStallWatch {
 public:
  FileStallWatch();
  FileStallWatch(const FileStallWatch&) = delete;
  FileStallWatch& operator=(const FileStallWatch&) = delete;
  ~FileStallWatch();

  /// Returns the longest current stall; its `since_ms` is 0 if there is none. Reads /proc again if the last reading is
  /// at least `every_ms` old.
  const FileStall& look(int64_t now_ms, int64_t every_ms = 1000);
  /// Call it after a signal was sent to the threads (StackSampler). The work of the signal handlers, e.g. loading
  /// unwind tables, then does not count as progress.
  void interrupted();

 private:
  struct Thread {
    std::string name;              ///< empty: name not read yet, a library's thread, or a watch thread
    int looks = 0;                 ///< number of attempts to read the name, which a thread sets after its start
    int syscall = -1, bytes = -1;  ///< descriptors of /proc/self/task/ID/syscall and of .../io
    SystemCall call;               ///< the current call and its file
    std::string in_call;           ///< line of /proc for the current call and its file; empty if the call uses no file
    std::string moved;             ///< text of /proc/self/task/ID/io: bytes read and written so far
    int64_t since_ms = 0;          ///< time of the last change of in_call or moved
    int excused = 0;               ///< remaining checks in which the thread may be in a signal handler
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

/// Returns the stall of the rank of `page`. Returns null if it has none, does not run or has no recent heartbeat.
const FileStall* stall_of(const RankPage& page, int64_t now_ms);
/// Returns "its saver thread is in fsync of /runs/a/x for 62 s".
std::string describe_stall(const FileStall& stall, int64_t now_ms);
/// Describes the ranks of this machine with a stall of at least `longer_ms`: "[rank 2 of 4 on node7] its saver thread
/// is ...; 3 more on this machine wait too". Empty if there are none.
std::string describe_stalls(std::span<const RankPage> pages, int64_t now_ms, int64_t longer_ms);

}  // namespace ashlar::watch
