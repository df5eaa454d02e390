#pragma once

#include <functional>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/autograd/var.h"

namespace ashlar {

/// Queue of weight-gradient computations that run later than the input gradients. Each entry owns the tensors that it
/// needs: the input x and the output gradient dy of a linear layer.
class WeightWork {
 public:
  void push(std::function<void()> work) { work_.push_back(std::move(work)); }
  int64_t size() const { return static_cast<int64_t>(work_.size()); }
  /// Runs all entries in order and frees their tensors; `after` is called after each entry.
  void run(const std::function<void()>& after = {});

 private:
  std::vector<std::function<void()>> work_;
};

/// The buffer into which a node's backward writes the gradient of one input. If no gradient is needed, the mode is
/// kSkip and the view is absent.
struct GradTarget {
  Tensor grad;
  GradMode mode = GradMode::kSkip;

  bool wanted() const { return mode != GradMode::kSkip; }
  MutView view() const { return mut_view_or_none(grad); }
};

/// Autograd tape of one micro-batch. A node is a whole operation, such as a linear layer or attention. Operations
/// record nodes in topological order as they run, so backward calls the nodes in reverse order and frees tensors after
/// use. Not supported, by design: second derivatives; in-place operations on values that another operation reads (see
/// `result_in_place`); views that alias gradients, except column splits, whose gradients are disjoint slices of one
/// gradient. Misuse throws a Bug.
class Tape {
 public:
  /// Backward function of a node. `dy` is the complete gradient of the node's result; the tape keeps no reference to
  /// it.
  using Backward = std::function<void(Tape& tape, Tensor dy)>;
  /// Backward function of a node that communicates its gradient. It starts the communication and returns the function
  /// that completes the communication.
  using Exchange = std::function<std::function<void(Tape& tape)>(Tensor dy)>;

  Tape(Backend& backend, Stream& stream) : backend_(backend), stream_(stream) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// Makes a tape input that needs a gradient, such as the activations received from the previous pipeline stage.
  Var leaf(Tensor value, const ValueInfo& info = {}) { return output(std::move(value), info); }
  /// Makes the result of a node. The caller must also pass the result to `record`.
  Var output(Tensor value, const ValueInfo& info = {});
  /// Makes the result of a node that has overwritten x, which must have no other reference. The gradients of the result
  /// and of x use the same memory: the node's backward changes the gradient in place and calls `pass_in_place`.
  Var output_in_place(Var x, const ValueInfo& info);
  /// Returns column slices of x as separate values, without a copy. Their gradients are slices of x's gradient. If x is
  /// moved in and has no other reference, each slice owns its columns exclusively.
  std::vector<Var> split_columns(Var x, const std::vector<int64_t>& widths);
  /// Appends a node with one result. `backward` is called only if the result received a gradient.
  void record(const Var& result, Backward backward);
  /// Appends a node whose backward communicates. Between the start and the end of its communication, the tape runs the
  /// weight-gradient computations of the node whose backward ran just before, so that computation and communication
  /// overlap.
  void record_exchange(const Var& result, Exchange exchange);

  /// Sets the gradient of a value before `backward`.
  void seed(const Var& v, Tensor grad);
  /// Calls the nodes in reverse order and removes them. If `deferred` is given, weight-gradient computations are pushed
  /// to it instead of being run. `after_node`, if given, is called after each node. Without `deferred`, the node's
  /// weight-gradient kernels are already queued when `after_node` is called, with one exception: if the next node
  /// communicates, the kernels are queued during that communication.
  void backward(WeightWork* deferred = nullptr, const std::function<void()>& after_node = {});
  /// Returns the gradient of a leaf, after `backward`: an undefined tensor if the leaf received no gradient.
  Tensor leaf_grad(const Var& leaf) const;

  // The following functions are called by nodes during backward.
  /// Returns the buffer in which the node must write or accumulate the gradient of an input.
  GradTarget target(const Var& input);
  /// Moves the memory of the inputs' values to their gradients, if nothing else needs the values: no other Tensor has
  /// them, and no gradient was written before. Inputs that are column slices must be all slices of one value, from left
  /// to right. The node's kernel may read the values while it writes the gradients, which it gets by `target`.
  void reuse_values(std::vector<Var>& inputs);
  /// Adds an existing tensor to the gradient of an input. If `grad` is the first contribution, the tape keeps a
  /// reference to `grad` instead of a copy, except for column slices and values overwritten in place.
  void add_grad(const Var& input, const Tensor& grad);
  /// Declares that the gradient buffer of an in-place result now contains the gradient of the input.
  void pass_in_place(const Var& input);
  /// Adds a weight-gradient computation. If `backward` was called with `deferred`, the computation is pushed to
  /// `deferred`. Otherwise it runs after the current node or, if the next node communicates, during that communication.
  void add_weight_work(std::function<void()> work);
  /// Returns the argument `deferred` of the running `backward`; null if weight gradients are not deferred.
  WeightWork* deferred() const { return deferred_; }

 private:
  struct Slot {
    Shape shape;
    DType dtype = DType::kFloat32;
    Tensor grad;
    bool written = false;
    int parent = -1;  // index of the slot whose gradient contains this one (column slice or in-place result); -1: none
    int64_t column = 0;
  };
  struct Node {
    const char* op;
    int slot;  // index of the result's slot; -1 for split_columns, which has several results
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
  WeightWork held_;  ///< weight-gradient computations that the last node added and that have not run yet
  WeightWork* deferred_ = nullptr;
  bool done_ = false;
};

/// Returns `value` as the result of a node on ctx's tape or, if ctx has no tape, as a value that needs no gradient.
Var result(const Ctx& ctx, Tensor value, const ValueInfo& info);
/// Returns column slices of x as values on ctx's tape or, if ctx has no tape, as values that need no gradient.
std::vector<Var> split_columns(const Ctx& ctx, Var x, const std::vector<int64_t>& widths);
/// Like `result`, but for an operation that has overwritten x. Throws a Bug unless x was moved in and has no other
/// reference, since another reader of x would see the new value.
Var result_in_place(const Ctx& ctx, Var x, const ValueInfo& info);

}  // namespace ashlar
