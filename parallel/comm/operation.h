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
  // Of a ControlPlane:
  kHostReduce,
  kHostBroadcast,
  kHostGather,
  kHostUnite,
};
std::string_view name_of(OperationKind kind);  ///< "all_reduce", ...

/// How operands are combined; zero means that nobody said.
enum class ReduceOp : uint8_t { kSum = 1, kMax = 2 };

/// What an operation is, as far as its ranks must agree on it.
struct OperationInfo {
  OperationKind kind = OperationKind::kNone;
  ReduceOp op{};                  ///< of an all_reduce
  DType dtype = DType::kFloat32;  ///< of a send_recv: of what is sent
  /// Elements of the whole vector; of a message for send, recv and send_recv; of what this rank sends for all_to_all,
  /// where ranks may differ; bytes on a control plane, where ranks must agree on them.
  int64_t size = 0;
  int peer = -1;  ///< root of a broadcast or gather, receiver of a send, sender of a recv; all_to_all: -1 for all ranks
  DType recv_dtype = DType::kFloat32;
  int64_t recv_size = 0;  ///< send_recv, all_to_all: elements received
  int recv_peer = -1;     ///< send_recv: from whom
  uint64_t number = 0;    ///< operations of this communicator on this rank before this one
  using Label = std::array<char, 24>;
  Label label{};  ///< on a control plane: what the operation is for, ended by a zero
};

/// Like "all_reduce sum fp32[4096] on tensor, operation 12".
std::string describe(const OperationInfo& info, std::string_view communicator);
/// The same written into `memory`, cut where that ends; allocates nothing. Returns what was written.
std::string_view describe(const OperationInfo& info, std::string_view communicator, std::span<char> memory);

/// One operation under way. Whoever drives it calls `advance` until it is complete.
class Operation {
 public:
  enum class State : uint8_t { kPending, kDone, kFailed, kAbandoned };

  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  /// Does what can be done without waiting; the first call starts the operation. True when it is complete.
  virtual bool advance() = 0;
  /// True when what it brings from other ranks is there, though it may still send.
  virtual bool received() const { return state_ == State::kDone; }
  /// The point of a device's work at which its output is there, once it is complete (or received); null: it is.
  virtual Event* completion() { return nullptr; }
  /// True when no other rank can ever complete what this operation waits for.
  virtual bool stuck() const { return false; }

  State state() const { return state_; }
  std::string text() const { return describe(info_, *communicator_); }

 private:
  friend class ProgressEngine;
  State state_ = State::kPending;
  std::exception_ptr failure_;
  OperationInfo info_;
  std::shared_ptr<const std::string> communicator_;
};

}  // namespace ashlar::comm
