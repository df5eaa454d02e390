#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/dtype.h"
#include "core/device/stream.h"

namespace ashlar::comm {

enum class OperationKind : uint8_t {
  kNone,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kSend,
  kRecv,
  kSendRecv,
  kBarrier,
  // For a ControlPlane:
  kHostReduce,
  kHostBroadcast,
  kHostGather,
  kHostUnite,
};
constexpr auto names_of(OperationKind) {
  return enum_names<OperationKind>("nothing", "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast",
                                   "send", "recv", "send_recv", "barrier", "host reduce", "host broadcast",
                                   "host gather", "host unite");
}
using ashlar::name_of;

/// The reduction; zero means not set.
enum class ReduceOp : uint8_t { kSum = 1, kMax = 2 };

/// Describes an operation, for errors and for checks that the ranks agree.
struct OperationInfo {
  OperationKind kind = OperationKind::kNone;
  ReduceOp op{};                  ///< reduction of an all_reduce
  DType dtype = DType::kFloat32;  ///< for a send_recv the dtype of the sent data
  /// Number of elements. Collectives: of the whole vector; all_to_all: of the data that this rank sends (ranks may
  /// differ); send and recv: of the message; send_recv: of the sent message. On a control plane: number of bytes.
  int64_t size = 0;
  int peer = -1;  ///< root of a broadcast or gather, receiver of a send, sender of a recv; all_to_all: -1 for all ranks
  DType recv_dtype = DType::kFloat32;
  int64_t recv_size = 0;  ///< send_recv, all_to_all: elements received
  int recv_peer = -1;     ///< send_recv: rank that sends
  uint64_t number = 0;    ///< sequence number on this communicator and rank
  using Label = std::array<char, 24>;
  Label label{};  ///< control plane: label of the operation, zero-terminated
};

/// Returns e.g. "all_reduce sum fp32[4096] on tensor, operation 12".
std::string describe(const OperationInfo& info, std::string_view communicator);
/// Writes the description into `memory`, truncated to its size; does not allocate. Returns the written text.
std::string_view describe(const OperationInfo& info, std::string_view communicator, std::span<char> memory);

/// A pending operation. ProgressEngine, or another operation of which this one is a part, calls `advance` until this
/// one is complete.
class Operation {
 public:
  enum class State : uint8_t { kPending, kDone, kFailed, kAbandoned };

  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  /// Does what is possible without waiting. The first call starts the operation. Returns true when it is complete.
  virtual bool advance() = 0;
  /// True when the received data is complete, even if data is still being sent.
  virtual bool received() const { return state_ == State::kDone; }
  /// Returns the device event after which the output is valid; null if the output is already valid. Call it only when
  /// the operation is complete or received.
  virtual Event* completion() { return nullptr; }
  /// True when the operation waits for another operation that this rank has not issued, so that waiting would never
  /// end.
  virtual bool stuck() const { return false; }

  State state() const { return state_; }
  /// What was submitted, and the name of its communicator. Only for submitted operations.
  const OperationInfo& info() const { return info_; }
  const std::string& communicator() const { return *communicator_; }
  std::string text() const { return describe(info_, *communicator_); }

 private:
  friend class ProgressEngine;
  State state_ = State::kPending;
  std::exception_ptr failure_;
  OperationInfo info_;
  std::shared_ptr<const std::string> communicator_;
};

}  // namespace ashlar::comm
