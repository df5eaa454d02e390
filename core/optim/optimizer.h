#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/backend/optimizer.h"
#include "core/nn/flat_ranges.h"
#include "core/optim/update_rule.h"

namespace ashlar::optim {

/// Returns the weight decay of tensors with this role.
double decay_of(nn::Role role, const OptimizerOptions& options);
/// Returns the factor on the learning rate of tensors with this role.
double lr_scale_of(nn::Role role, const OptimizerOptions& options);

/// Base class of the optimizers. An optimizer updates the ranges of the flat buffers that this rank owns; other ranks
/// update the other ranges. It owns packed fp32 master weights (with fp32 or fp64 storage, the parameter values are the
/// master weights) and packed state tensors. Each update rule is a derived class in its own file; other code uses only
/// this interface.
class Optimizer {
 public:
  /// Allocates the state of the owned ranges and, unless the parameter values are the master weights, the master
  /// weights, all filled with zeros. Then call `initialize`, or load the master weights and call
  /// `copy_master_to_params`.
  Optimizer(const Ctx& ctx, nn::ParameterStore& store, const OptimizerOptions& options, nn::FlatRanges owned);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Sets the owned master weights to their initial values and copies them to the owned parameter values.
  void initialize(const Ctx& ctx, uint64_t seed);
  void copy_master_to_params(const Ctx& ctx);  ///< copies the master weights, rounded once, to the owned values
  /// Queues one update of the owned ranges. The update reads the main gradients, ctx.scalars and `clip` (a ClipState).
  virtual void step(const Ctx& ctx, const ConstView& clip) = 0;
  /// Sets the scalars, besides the learning rate, that the rule needs in a step. `step` is counted from 0.
  virtual void set_scalars(int64_t /*step*/, StepScalars& /*scalars*/) const {}

  const nn::FlatRanges& owned() const { return owned_; }
  /// Returns the owned ranges of all tensors, ordered by tensor name.
  const std::vector<nn::ShardedRange>& ranges() const { return ranges_; }
  nn::FlatTensor master() const { return {.data = master_, .packed = separate_master_}; }
  struct State {
    StateName name;
    nn::FlatTensor tensor;
  };
  const std::vector<State>& state() const { return state_; }  ///< in the order of Rule::state
  const nn::FlatTensor& state(std::string_view suffix) const;
  const OptimizerOptions& options() const { return options_; }

 protected:
  /// Returns the kernel arguments that all rules share.
  Update update(const Ctx& ctx, const ConstView& clip) const;
  MutView state_view(size_t index) const { return state_[index].tensor.data.mut_view(); }

 private:
  nn::ParameterStore& store_;
  OptimizerOptions options_;
  nn::FlatRanges owned_;
  std::vector<nn::ShardedRange> ranges_;
  bool separate_master_;
  Tensor master_;
  std::vector<State> state_;
  Tensor segments_;  // table with one UpdateSegment for each of ranges_
};

/// Constructs the optimizer class T. Used as Rule::make.
template <typename T>
std::unique_ptr<Optimizer> make(const Ctx& ctx, nn::ParameterStore& store, const OptimizerOptions& options,
                                nn::FlatRanges owned) {
  return std::make_unique<T>(ctx, store, options, std::move(owned));
}

/// Constructs the optimizer that options.kind selects.
std::unique_ptr<Optimizer> make_optimizer(const Ctx& ctx, nn::ParameterStore& store, const OptimizerOptions& options,
                                          nn::FlatRanges owned);

}  // namespace ashlar::optim
