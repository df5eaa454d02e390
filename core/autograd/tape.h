#pragma once

#include <functional>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/autograd/var.h"

namespace ashlar {

/// Weight-gradient work put off by a backward over inputs only: each entry owns its (x, dy).
class WeightWork {
 public:
  void push(std::function<void()> work) { work_.push_back(std::move(work)); }
  int64_t size() const { return static_cast<int64_t>(work_.size()); }
  /// Runs everything in the order it was queued and frees what it owned; `after` is called after each piece of work.
  void run(const std::function<void()>& after = {});

 private:
  std::vector<std::function<void()>> work_;
};

/// Where a node writes the gradient of an input. An absent view with kSkip when none is wanted.
struct GradTarget {
  Tensor grad;
  GradMode mode = GradMode::kSkip;

  bool wanted() const { return mode != GradMode::kSkip; }
  MutView view() const { return mut_view_or_none(grad); }
};

/// An eager tape of coarse nodes, one per micro-batch. The order of recording is topological, so backward is a
/// reverse loop that frees what it has used. Not supported, by design: second derivatives, operations in place but of a
/// value's only reader (`result_in_place`), views that alias gradients (column splits excepted, which own disjoint
/// slices of one gradient). Misuse throws Bug.
class Tape {
 public:
  /// A node's backward, given the complete gradient of its result, which the tape has given up.
  using Backward = std::function<void(Tape& tape, Tensor dy)>;
  /// The same of a node that exchanges its gradient with other ranks: begins, and returns what ends it.
  using Exchange = std::function<std::function<void(Tape& tape)>(Tensor dy)>;

  Tape(Backend& backend, Stream& stream) : backend_(backend), stream_(stream) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// An input whose gradient is wanted (a pipeline stage's received rows, a checked operand).
  Var leaf(Tensor value, const Made& made = {}) { return output(std::move(value), made); }
  /// A node's result; give it to `record` as well.
  Var output(Tensor value, const Made& made = {});
  /// The result of a node that has overwritten x, whose value nobody else may hold. Its gradient lies where x's will
  /// be: the node changes it in place and says so by `pass_in_place`.
  Var output_in_place(Var x, const Made& made);
  /// Column slices of x as values of their own, without a copy; their gradients are slices of x's gradient. Where x is
  /// moved in and nobody else holds its value, each slice is the only holder of its columns.
  std::vector<Var> split_columns(Var x, const std::vector<int64_t>& widths);
  /// Appends a node with one result, named by the op that made it. `backward` is called only if the result received a
  /// gradient.
  void record(const Var& result, Backward backward);
  /// The same, with an exchange: the weight work of the node that backward runs just before lies between its two
  /// halves.
  void record_exchange(const Var& result, Exchange exchange);

  /// Sets the gradient of a value before `backward`.
  void seed(const Var& v, Tensor grad);
  /// Runs the tape in reverse and empties it. With `deferred`, linears push their weight gradients there. `after_node`,
  /// when given, is called after each node: what its weights received is issued by then, but for the node before an
  /// exchange, when the exchange is done.
  void backward(WeightWork* deferred = nullptr, const std::function<void()>& after_node = {});
  /// The gradient that reached a leaf; call after `backward`. Undefined if none did.
  Tensor leaf_grad(const Var& leaf) const;

  // For nodes, inside backward:
  /// A buffer to write or accumulate the gradient of an input into.
  GradTarget target(const Var& input);
  /// Hands over an existing tensor as the gradient of an input: shared when it is the first, added otherwise.
  void add_grad(const Var& input, const Tensor& grad);
  /// The gradient of a result in place has become that of its input.
  void pass_in_place(const Var& input);
  /// Takes work that only a weight's gradient waits for. It runs when the node is done; if an exchange comes next, once
  /// that has begun, so that it hides it; in a backward with `deferred`, when that is run.
  void add_weight_work(std::function<void()> work);
  /// Of the backward that runs; null when weight work is not put off.
  WeightWork* deferred() const { return deferred_; }

 private:
  struct Slot {
    Shape shape;
    DType dtype = DType::kFloat32;
    Tensor grad;
    bool written = false;
    int parent = -1;  // of a column slice, or of a result in place
    int64_t column = 0;
  };
  struct Node {
    const char* op;
    int slot;  // of the result; -1: a split, whose slices have the gradients
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
  WeightWork held_;  ///< of the node that ran last
  WeightWork* deferred_ = nullptr;
  bool done_ = false;
};

/// A node's result on ctx's tape, or the plain value when nothing is recorded.
Var result(const Ctx& ctx, Tensor value, const Made& made);
/// Column slices on ctx's tape, or plain slices when nothing is recorded.
std::vector<Var> split_columns(const Ctx& ctx, Var x, const std::vector<int64_t>& widths);
/// On ctx's tape, or the plain value when nothing is recorded, of an operation that has overwritten x. Bug unless x was
/// moved in and nobody else holds its value: others would read the result for it.
Var result_in_place(const Ctx& ctx, Var x, const Made& made);

}  // namespace ashlar
