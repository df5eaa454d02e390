#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/backend/optimizer.h"
#include "core/nn/flat_ranges.h"
#include "core/optim/update_rule.h"

namespace ashlar::optim {

/// Returns the weight decay of a role.
double decay_of(nn::Role role, const OptimizerOptions& options);

/// An update rule for the parts of a store that this rank owns. It has fp32 master weights (the values themselves if
/// the storage is fp32 or fp64) and the state tensors of the rule, packed. Other ranks update the other parts. A rule
/// is a class with `step`, in its own file; other code uses only this interface.
class Optimizer {
 public:
  /// Allocates and zeroes the state of `owned`. Master weights are zero at first (or the values themselves): call
  /// `initialize` or load them, then `copy_master_to_params`.
  Optimizer(const Ctx& ctx, nn::ParameterStore& store, const OptimizerOptions& options, nn::FlatRanges owned);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void initialize(const Ctx& ctx,
                  uint64_t seed);              ///< initializes the owned master weights, then copies them to the params
  void copy_master_to_params(const Ctx& ctx);  ///< owned values = master rounded once
  /// Queues one update of the owned parts from their main gradients, ctx.scalars and `clip` (ClipState).
  virtual void step(const Ctx& ctx, const ConstView& clip) = 0;
  /// Sets the scalars of step 0, 1, ... that the rule needs besides the learning rate.
  virtual void set_scalars(int64_t /*step*/, StepScalars& /*scalars*/) const {}

  const nn::FlatRanges& owned() const { return owned_; }
  const std::vector<nn::ShardedRange>& ranges() const { return ranges_; }  ///< owned ranges of tensors, by name
  nn::FlatTensor master() const { return {.data = master_, .packed = separate_master_}; }
  struct State {
    StateName name;
    nn::FlatTensor tensor;
  };
  const std::vector<State>& state() const { return state_; }  ///< ordered as Rule::state
  const nn::FlatTensor& state(std::string_view suffix) const;
  const OptimizerOptions& options() const { return options_; }

 protected:
  /// The arguments common to all rules.
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
  Tensor segments_;  // UpdateSegment of each range
};

/// Rule::make of a class.
template <typename T>
std::unique_ptr<Optimizer> make(const Ctx& ctx, nn::ParameterStore& store, const OptimizerOptions& options,
                                nn::FlatRanges owned) {
  return std::make_unique<T>(ctx, store, options, std::move(owned));
}

/// The optimizer of options.kind.
std::unique_ptr<Optimizer> make_optimizer(const Ctx& ctx, nn::ParameterStore& store, const OptimizerOptions& options,
                                          nn::FlatRanges owned);

}  // namespace ashlar::optim
