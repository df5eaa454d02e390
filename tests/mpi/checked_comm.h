#pragma once

#include <deque>
#include <memory>

#include "parallel/comm/communicator.h"

namespace ashlar::comm {

/// Another communicator with proof that its ranks agree: before an operation begins, each two ranks that take part
/// compare what they issued (kind, reduction, dtype, sizes, parts, peers, position in the order of the two). A mismatch
/// is a Bug on both, naming both sides. Costs one small exchange a pair and holds operations back until it is over;
/// results are those of `inner`. Splits are checked too.
class CheckedComm final : public Communicator {
 public:
  /// Called by all ranks of `inner`.
  explicit CheckedComm(std::unique_ptr<Communicator> inner);

 private:
  struct Signature;
  struct Shared;
  class CheckedOperation;

  OperationPtr make(const DeviceOperation& args, Stream& stream) override;
  std::unique_ptr<Communicator> make_split(const Split& args) override;

  std::shared_ptr<Shared> shared_;
};

}  // namespace ashlar::comm
