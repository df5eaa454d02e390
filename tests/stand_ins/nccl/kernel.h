#pragma once

#include <vector>

#include "tests/stand_ins/nccl/communicator.h"

namespace ashlar::stand_in {

/// The calls of one group on one communicator while a stream runs them.
class Kernel {
 public:
  Kernel(ncclComm& comm, const std::vector<Call>& calls);
  /// Does what can be done without waiting; whether all of it is done. Throws where ranks do not agree.
  bool step();
  const std::vector<Call>& calls() const { return calls_; }

 private:
  struct Header;
  Header header_of(size_t i) const;
  Post::Name name_of_message(size_t i, int from) const;
  void send(size_t i);
  bool finish(size_t i);
  void check(size_t i, int from, const Post::Bytes& bytes) const;

  ncclComm& comm_;
  std::vector<Call> calls_;
  std::vector<uint64_t> numbers_;
  std::vector<bool> done_;
  std::vector<std::pair<uint64_t, uint64_t>> order_;  ///< communicator, collectives so far, when this was launched
  int delay_ = 0;
  bool begun_ = false;
};

}  // namespace ashlar::stand_in
