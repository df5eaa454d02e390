#pragma once

#include <memory>
#include <string>

#include "core/device/stream.h"
#include "parallel/comm/device_operation.h"
#include "parallel/comm/progress_engine.h"

namespace ashlar::comm {

struct Split {
  int color = 0;  ///< ranks with equal color form a communicator; negative: none
  int key = 0;    ///< order of the ranks; ties keep the parent's order
  std::string name;
  /// Carries the messages of a control plane, which control_traffic() counts and CheckedComm does not check.
  bool control = false;
};

/// A handle on a pending operation. Movable. The destructor waits for the operation. If an exception is passing, it
/// instead abandons all communication of this rank, since peers may never answer; the process must then end.
class Work {
 public:
  Work() = default;  ///< already complete
  Work(std::shared_ptr<ProgressEngine> engine, std::shared_ptr<Operation> operation);
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept;
  ~Work() { release(); }

  /// Makes the host wait. On return the operation is complete on this rank, its output is valid, and its buffers may be
  /// reused. Rethrows errors.
  void wait();
  /// Makes later work of `stream` wait, so that it sees the output and may reuse the buffers. The host continues at
  /// once if the transport queues on the device. A transport that runs on the host blocks until the operation is
  /// complete.
  void wait(Stream& stream);
  /// Waits only for the received message of a send_recv. The sent message may still be in flight.
  void wait_received(Stream& stream);
  /// Makes one round of progress. Returns true if the operation is complete.
  bool done();
  /// Returns true if the operation is complete. Makes no progress.
  bool ready() const { return operation_ == nullptr || operation_->state() == Operation::State::kDone; }
  bool received() const { return operation_ == nullptr || ready() || operation_->received(); }
  bool stuck() const { return operation_ != nullptr && operation_->stuck(); }
  std::string text() const { return operation_ ? operation_->text() : "nothing"; }

 private:
  void release() noexcept;
  std::shared_ptr<ProgressEngine> engine_;
  std::shared_ptr<Operation> operation_;
};

/// Ranks that communicate buffers of a device. All calls except `split` are asynchronous; any number may be pending and
/// be waited for in any order.
/// Streams: an operation starts when the work queued on `stream` so far is complete. It is not part of the stream:
/// later work that needs its result or its buffers waits with Work::wait(stream).
/// Order: on each pair of ranks the operations of one communicator are issued in the same order. A send matches a recv;
/// opposite messages of the same two ranks are one send_recv on both. Other communicators are independent.
/// Sums: operands are added in rank order in fp32 (fp64 for fp64, 64-bit integers for int32; a sum that overflows int32
/// is a Bug) and rounded once at the store: the same bits on every rank, for any message and bucket sizes. Maxima treat
/// NaN as the largest value.
/// Progress happens inside `progress`, `wait`, `done` and on issue, for all communicators of the rank together. One
/// thread only. Errors: Bug for invalid calls (including a message of unexpected size), Error(kPeerLost) when the
/// transport fails.
/// SelfComm and MpiComm access host memory during the call, so they accept only synchronous streams (Bug otherwise).
/// StagedComm copies the buffers of other devices for them.
class Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return *name_; }

  [[nodiscard]] Work all_reduce(const AllReduce& args, Stream& stream);
  [[nodiscard]] Work reduce_scatter(const ReduceScatter& args, Stream& stream);
  [[nodiscard]] Work all_gather(const AllGather& args, Stream& stream);
  [[nodiscard]] Work all_to_all(const AllToAll& args, Stream& stream);
  [[nodiscard]] Work broadcast(const Broadcast& args, Stream& stream);
  [[nodiscard]] Work send(const Send& args, Stream& stream);
  [[nodiscard]] Work recv(const Recv& args, Stream& stream);
  [[nodiscard]] Work send_recv(const SendRecv& args, Stream& stream);
  [[nodiscard]] Work barrier(Stream& stream);
  /// Dispatches to the method for the operation held by `args`.
  [[nodiscard]] Work issue(const DeviceOperation& args, Stream& stream);

  /// Called by all ranks, which must have no pending operations. Null for a negative color.
  std::unique_ptr<Communicator> split(const Split& args);

  /// The communicator of the same ranks for host memory.
  virtual Communicator& host() { return *this; }

  void progress() { engine_->progress(); }
  /// The last operation issued here, like "all_reduce sum fp32[4096] on tensor, operation 12".
  std::string last_operation() const { return describe(last_, *name_); }
  const std::shared_ptr<ProgressEngine>& engine() const { return engine_; }

 protected:
  using OperationPtr = std::shared_ptr<Operation>;

  Communicator(int rank, int size, std::string name, std::shared_ptr<ProgressEngine> engine);

  /// Makes the operation. The arguments are validated, and `parts` are filled in. May return null if the operation is
  /// already complete.
  virtual OperationPtr make(const DeviceOperation& args, Stream& stream) = 0;
  virtual std::unique_ptr<Communicator> make_split(const Split& args) = 0;

  /// For transports that access buffers on the host during the call. Bug for an asynchronous stream.
  void check_on_host(const Stream& stream) const;
  /// The operation being issued, for wrapped communicators.
  const OperationInfo& issuing() const { return last_; }

 private:
  friend class ControlPlane;  // it issues messages as steps of its operations
  void note(OperationInfo info);
  Work launch(const DeviceOperation& args, Stream& stream);
  void check_peer(int peer) const;

  const int rank_;
  const int size_;
  const std::shared_ptr<const std::string> name_;
  const std::shared_ptr<ProgressEngine> engine_;
  OperationInfo last_;
  uint64_t issued_ = 0;
};

}  // namespace ashlar::comm
