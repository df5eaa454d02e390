#pragma once

#include <vector>

#include "parallel/comm/mpi_group.h"

namespace ashlar::comm {

/// A set of messages, which is complete when every message is complete.
class MpiMessages {
 public:
  /// Messages of zero bytes are neither sent nor received, since both sides know the size.
  void send(const MpiGroup& group, const void* data, int64_t bytes, int to, int tag);
  void receive(const MpiGroup& group, void* data, int64_t bytes, int from, int tag);
  /// If all messages are complete, clears them and returns true. Throws Bug when a message of unexpected size has
  /// arrived.
  bool test();
  bool empty() const { return requests_.empty(); }  ///< no pending messages

 private:
  [[noreturn]] void explain(int code) const;

  std::vector<MPI_Request> requests_;
  std::vector<int> expected_;  ///< one per request: expected bytes of a receive; negative for a send
  std::vector<MPI_Status> statuses_;
};

}  // namespace ashlar::comm
