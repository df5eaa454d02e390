#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/tensor/view.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/progress_engine.h"
#include "parallel/comm/ranges.h"

namespace ashlar::comm {

/// Views are taken as flat arrays and must be contiguous; an empty one may be absent. Reductions take fp64, fp32, bf16
/// and int32, the other operations any dtype. `p` is the number of ranks. Buffers belong to the operation until its
/// Work is done: nobody else writes any of them, nobody reads what it writes.

/// out = in of rank 0 (op) in of rank 1 (op) ...
struct AllReduce {
  ConstView in;   ///< [n] read
  MutView out;    ///< [n] written; the memory of `in`, or apart from it
  ReduceOp op{};  ///< must be given
};
/// out = the caller's part of the sum of all `in`.
struct ReduceScatter {
  ConstView in;  ///< [n] read
  MutView out;   ///< written; its own part of `in`, or apart from it
  /// Which elements of `in` each rank gets; equal on all ranks, ascending, gaps allowed. Empty: p equal parts.
  std::span<const Range> parts;
};
/// out = the parts of all ranks at their places.
struct AllGather {
  ConstView in;                  ///< the caller's part; its own place in `out`, or apart from it
  MutView out;                   ///< [n] written, but for gaps
  std::span<const Range> parts;  ///< as for ReduceScatter, over `out`
};
struct Broadcast {
  MutView data;  ///< [n] read on `root`, written elsewhere
  int root = 0;
};
struct Send {
  ConstView data;
  int to = -1;
};
struct Recv {
  MutView data;  ///< as many elements as are sent
  int from = -1;
};
/// Both at once; either peer may be the other's.
struct SendRecv {
  ConstView send;
  int to = -1;
  MutView recv;  ///< apart from `send`
  int from = -1;
};
struct Split {
  int color = 0;  ///< ranks of one color form a communicator; negative: none
  int key = 0;    ///< order of the ranks in it; equal keys keep the order of the parent
  std::string name;
  bool control = false;  ///< for the messages of a control plane: counted apart, not checked
};

/// A handle on an operation under way. Movable. One that is destroyed early waits; but when an exception is passing,
/// it gives up all communication of this rank instead (peers may never answer) and the process is expected to end.
class Work {
 public:
  Work() = default;  ///< done
  Work(std::shared_ptr<ProgressEngine> engine, std::shared_ptr<Operation> operation);
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept;
  ~Work() { release(); }

  /// Returns when the operation is complete on this rank: its output is there, its buffers are the caller's again.
  /// Throws what went wrong.
  void wait();
  /// Whether it is complete, after one round of progress.
  bool done();
  /// Whether it is complete, without progress.
  bool ready() const { return operation_ == nullptr || operation_->state() == Operation::State::kDone; }
  bool stuck() const { return operation_ != nullptr && operation_->stuck(); }
  std::string text() const { return operation_ ? operation_->text() : "nothing"; }

 private:
  void release() noexcept;
  std::shared_ptr<ProgressEngine> engine_;
  std::shared_ptr<Operation> operation_;
};

/// Ranks that work together. All calls are asynchronous but `split`; any number may be under way and be waited for in
/// any order.
///   Order: on each pair of ranks the operations of one communicator are issued in one order. A send pairs with a recv;
/// opposite messages of the same two ranks are one send_recv on both. Other communicators are independent.
///   Sums: operands are added in rank order in fp32 (fp64 for fp64, 64-bit integers for int32; a sum beyond int32 is a
/// Bug) and rounded once at the store: the same bits on every rank, whatever the size of messages and buckets. Maxima
/// take NaN for the largest value.
///   Progress happens inside `progress`, `wait`, `done` and when an operation is issued, for all communicators of the
/// rank together. One thread only; errors: Bug for calls that cannot be right (a message of another size than
/// expected among them), Error(kPeerLost) when the transport fails.
class Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return *name_; }

  [[nodiscard]] Work all_reduce(const AllReduce& args);
  [[nodiscard]] Work reduce_scatter(const ReduceScatter& args);
  [[nodiscard]] Work all_gather(const AllGather& args);
  [[nodiscard]] Work broadcast(const Broadcast& args);
  [[nodiscard]] Work send(const Send& args);
  [[nodiscard]] Work recv(const Recv& args);
  [[nodiscard]] Work send_recv(const SendRecv& args);
  [[nodiscard]] Work barrier();

  /// Called by all ranks with nothing under way; null for a negative color.
  std::unique_ptr<Communicator> split(const Split& args);

  void progress() { engine_->progress(); }
  /// The last operation issued here, like "all_reduce sum fp32[4096] on tensor, operation 12".
  std::string last_operation() const { return describe(last_, *name_); }
  const std::shared_ptr<ProgressEngine>& engine() const { return engine_; }

 protected:
  using OperationPtr = std::shared_ptr<Operation>;

  Communicator(int rank, int size, std::string name, std::shared_ptr<ProgressEngine> engine);

  /// Arguments have been checked and `parts` filled in. They may return null: complete already.
  virtual OperationPtr make_all_reduce(const AllReduce& args) = 0;
  virtual OperationPtr make_reduce_scatter(const ReduceScatter& args) = 0;
  virtual OperationPtr make_all_gather(const AllGather& args) = 0;
  virtual OperationPtr make_broadcast(const Broadcast& args) = 0;
  virtual OperationPtr make_send(const Send& args) = 0;
  virtual OperationPtr make_recv(const Recv& args) = 0;
  virtual OperationPtr make_send_recv(const SendRecv& args) = 0;
  virtual OperationPtr make_barrier() = 0;
  virtual std::unique_ptr<Communicator> make_split(const Split& args) = 0;

  /// What is being issued, for those that are wrapped around another.
  const OperationInfo& issuing() const { return last_; }

 private:
  friend class ControlPlane;  // its messages are steps of its own operations
  void note(OperationInfo info);
  Work launch(OperationPtr operation);
  void check_peer(int peer) const;

  const int rank_;
  const int size_;
  const std::shared_ptr<const std::string> name_;
  const std::shared_ptr<ProgressEngine> engine_;
  OperationInfo last_;
  uint64_t issued_ = 0;
};

}  // namespace ashlar::comm
