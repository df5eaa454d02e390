#pragma once

#include <deque>
#include <memory>

#include "parallel/comm/communicator.h"

namespace ashlar::comm {

/// Wraps a communicator and checks that its ranks agree: before an operation starts, each two participating ranks
/// compare what they issued (kind, reduction, dtype, sizes, parts, peers, sequence number between the two). A mismatch
/// is a Bug on both, with both sides. Costs one small exchange per pair and delays operations until it is complete;
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
