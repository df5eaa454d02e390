#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/tensor/view.h"
#include "tests/gpu_emulator/work_queues.h"

namespace ashlar::emulator {

/// Which calls have touched which memory. Two calls that touch the same, one of them writing, must be ordered by their
/// stream, by an event or by a wait of the host; found when the second one is queued, whatever order chance takes.
/// Covers missing waits, and memory used again too early.
class AccessOrder {
 public:
  explicit AccessOrder(const WorkQueues& queues) : queues_(queues) {}

  /// The call in hand (WorkQueues::call) reads or writes the view. Throws a Bug that names both calls.
  void touch(const ConstView& view, bool writes);
  /// Whether a call that has not run yet touches some of it.
  bool in_use(const void* begin, int64_t bytes) const;
  /// "that fill (call 3 on stream 0) writes; the last call queued is ...": for errors about a place.
  std::string known_of(const void* at) const;

 private:
  struct Access {
    uintptr_t begin, end;
    int64_t row_bytes, stride_bytes;  ///< of a matrix with gaps
    bool writes;
    WorkQueues::Call call;
  };
  static bool apart(const Access& a, const Access& b);

  const WorkQueues& queues_;
  std::unordered_map<uintptr_t, std::vector<Access>> pages_;
};

}  // namespace ashlar::emulator
