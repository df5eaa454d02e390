#pragma once

#include <functional>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/autograd/var.h"

namespace ashlar {

/// Deferred weight-gradient work of a backward that computes only input gradients. Each entry owns its (x, dy).
class WeightWork {
 public:
  void push(std::function<void()> work) { work_.push_back(std::move(work)); }
  int64_t size() const { return static_cast<int64_t>(work_.size()); }
  /// Runs all entries in order and frees their tensors; `after` is called after each entry.
  void run(const std::function<void()>& after = {});

 private:
  std::vector<std::function<void()>> work_;
};

/// The place to which a node writes the gradient of an input. If no gradient is needed, the mode is kSkip and the view
/// absent.
struct GradTarget {
  Tensor grad;
  GradMode mode = GradMode::kSkip;

  bool wanted() const { return mode != GradMode::kSkip; }
  MutView view() const { return mut_view_or_none(grad); }
};

/// An eager tape of coarse nodes, one per micro-batch. The recording order is topological, so backward is a reverse
/// loop that frees tensors after use. Not supported, by design: second derivatives, in-place operations on values with
/// other readers (`result_in_place`), views that alias gradients (except column splits, which own disjoint slices of
/// one gradient). Misuse throws Bug.
class Tape {
 public:
  /// A node's backward. It receives the complete gradient of the node's result, which the tape no longer holds.
  using Backward = std::function<void(Tape& tape, Tensor dy)>;
  /// Backward of a node that communicates its gradient: starts the exchange and returns the function that finishes it.
  using Exchange = std::function<std::function<void(Tape& tape)>(Tensor dy)>;

  Tape(Backend& backend, Stream& stream) : backend_(backend), stream_(stream) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// An input that needs a gradient (received rows of a pipeline stage, an operand under test).
  Var leaf(Tensor value, const ValueInfo& info = {}) { return output(std::move(value), info); }
  /// Makes the result of a node. Pass it to `record` too.
  Var output(Tensor value, const ValueInfo& info = {});
  /// Makes the result of a node that has overwritten x, which must have no other reference. The gradients of result and
  /// x use the same memory: the node changes the gradient in place and calls `pass_in_place`.
  Var output_in_place(Var x, const ValueInfo& info);
  /// Column slices of x as separate values, without a copy; their gradients are slices of x's gradient. If x is moved
  /// in and has no other reference, each slice owns its columns exclusively.
  std::vector<Var> split_columns(Var x, const std::vector<int64_t>& widths);
  /// Appends a node with one result, named by its op. `backward` is called only if the result received a gradient.
  void record(const Var& result, Backward backward);
  /// Appends a node with an exchange. In backward, the weight work of the node that ran before it is executed between
  /// the start and the end of the exchange.
  void record_exchange(const Var& result, Exchange exchange);

  /// Sets the gradient of a value before `backward`.
  void seed(const Var& v, Tensor grad);
  /// Runs the tape in reverse and empties it. With `deferred`, linears push their weight gradients there. `after_node`,
  /// if given, is called after each node, when its contributions to weight gradients are issued. For the node before an
  /// exchange this is after the exchange.
  void backward(WeightWork* deferred = nullptr, const std::function<void()>& after_node = {});
  /// The gradient of a leaf; call after `backward`. Undefined if there is none.
  Tensor leaf_grad(const Var& leaf) const;

  // For nodes, during backward:
  /// A buffer for writing or accumulating the gradient of an input.
  GradTarget target(const Var& input);
  /// Passes an existing tensor as a gradient of an input. The first one is shared; later ones are added.
  void add_grad(const Var& input, const Tensor& grad);
  /// Declares that the gradient of an in-place result has become that of its input.
  void pass_in_place(const Var& input);
  /// Adds work that only weight gradients depend on. It runs after the node. If the next node is an exchange, it runs
  /// after the start of the exchange, to overlap with it. In a backward with `deferred`, it runs when `deferred` is
  /// run.
  void add_weight_work(std::function<void()> work);
  /// The deferred work of the running backward; null if weight work is not deferred.
  WeightWork* deferred() const { return deferred_; }

 private:
  struct Slot {
    Shape shape;
    DType dtype = DType::kFloat32;
    Tensor grad;
    bool written = false;
    int parent = -1;  // parent slot of a column slice or an in-place result
    int64_t column = 0;
  };
  struct Node {
    const char* op;
    int slot;  // slot of the result; -1: a split, whose slices have the gradients
    Backward backward;
    bool exchanges = false;
  };

  bool exchange_is_next() const;
  Tensor allocate_like(const Slot& slot);
  void allocate_in_parent(Slot& slot);
  Slot& slot_of(const Var& v);

  Backend& backend_;
  Stream& stream_;
  std::vector<Slot> slots_;
  std::vector<Node> nodes_;
  WeightWork held_;  ///< weight work of the last node
  WeightWork* deferred_ = nullptr;
  bool done_ = false;
};

/// A node's result on ctx's tape, or the plain value if not recording.
Var result(const Ctx& ctx, Tensor value, const ValueInfo& info);
/// Column slices on ctx's tape, or plain slices if not recording.
std::vector<Var> split_columns(const Ctx& ctx, Var x, const std::vector<int64_t>& widths);
/// The result of an operation that has overwritten x, on ctx's tape or as a plain value. Bug unless x was moved in and
/// has no other reference, since other readers would see the new value.
Var result_in_place(const Ctx& ctx, Var x, const ValueInfo& info);

}  // namespace ashlar
