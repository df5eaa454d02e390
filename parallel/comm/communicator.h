#pragma once

#include <memory>
#include <string>

#include "core/device/stream.h"
#include "parallel/comm/device_operation.h"
#include "parallel/comm/progress_engine.h"

namespace ashlar::comm {

struct Split {
  int color = 0;  ///< ranks with equal color form a communicator; negative: this rank joins none
  int key = 0;    ///< ranks are ordered by key; equal keys keep the parent's order
  std::string name;
  /// True for the messages of a control plane: control_traffic() counts them, and the tests' CheckedComm does not check
  /// them.
  bool control = false;
};

/// A handle on a pending operation. Movable. The destructor waits for the operation. If the destructor runs because of
/// an exception, it instead abandons all communication of this rank, since peers may never answer; the process must
/// then end.
class Work {
 public:
  Work() = default;  ///< already complete
  Work(std::shared_ptr<ProgressEngine> engine, std::shared_ptr<Operation> operation);
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept;
  ~Work() { release(); }

  /// Makes the host wait. On return the operation is complete on this rank, its output is valid, and its buffers may be
  /// reused. Rethrows the error of the operation.
  void wait();
  /// Makes later work of `stream` wait for the operation, so that this work sees the output and may reuse the buffers.
  /// The host continues at once if the transport queues operations on the device. If the transport runs on the host,
  /// the call blocks until the operation is complete.
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

/// A group of ranks that exchange buffers in device memory. All calls except `split` are asynchronous. Any number of
/// operations may be pending, and they may be waited for in any order.
/// Streams: an operation starts when the work queued on `stream` so far is complete. The stream does not wait for the
/// operation: before later work that uses its result or its buffers, call Work::wait(stream).
/// Order: if two ranks share several operations on one communicator, both must issue these operations in the same
/// order. A send on one rank matches a recv on the other. Two ranks that send to each other at the same time both issue
/// one send_recv. Different communicators are independent.
/// Sums: operands are added in rank order in fp32 (fp64 for fp64, 64-bit integers for int32; a sum that overflows int32
/// is a Bug) and rounded once at the store. So sums have the same bits on every rank, for any message and bucket sizes.
/// NcclComm differs (see Sums in nccl_comm.h). Maxima treat NaN as the largest value.
/// Progress happens inside `progress`, `wait`, `done` and on issue, for all communicators of the rank together. Only
/// one thread may call a communicator. Errors: Bug for invalid calls (including a message of unexpected size),
/// Error(kPeerLost) when the transport fails.
/// Devices: SelfComm and MpiComm access the buffers on the host without waiting for a stream, so they accept only
/// synchronous streams (Bug otherwise). For other devices StagedComm wraps such a communicator and copies the buffers
/// to and from host memory.
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

  /// Makes the communicators of equal colors, like MPI_Comm_split. Called by all ranks, which must have no pending
  /// operations. Returns null for a negative color.
  std::unique_ptr<Communicator> split(const Split& args);

  /// Returns the communicator of the same ranks for buffers in host memory.
  virtual Communicator& host() { return *this; }

  void progress() { engine_->progress(); }
  /// Describes the last operation issued on this communicator, like "all_reduce sum fp32[4096] on tensor, operation
  /// 12".
  std::string last_operation() const { return describe(last_, *name_); }
  const std::shared_ptr<ProgressEngine>& engine() const { return engine_; }

 protected:
  using OperationPtr = std::shared_ptr<Operation>;

  Communicator(int rank, int size, std::string name, std::shared_ptr<ProgressEngine> engine);

  /// Makes the operation of a transport. `args` is already validated, and empty `parts` in it are replaced by equal
  /// parts. May return null if the operation is already complete.
  virtual OperationPtr make(const DeviceOperation& args, Stream& stream) = 0;
  virtual std::unique_ptr<Communicator> make_split(const Split& args) = 0;

  /// Throws Bug for an asynchronous stream. Called by transports that access buffers on the host during the call.
  void check_on_host(const Stream& stream) const;
  /// Describes the operation that is being issued, for use in `make`.
  const OperationInfo& issuing() const { return last_; }

 private:
  friend class ControlPlane;  // it calls `make` for the messages of its operations
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
