#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/enum_names.h"
#include "kernels/cuda/attention/cudnn_attention.h"

/// Whether a run's attention is cuDNN's or our own: decided once, before the first step, for the one shape that its
/// steps have.
namespace ashlar::cudnn {

/// What a user may ask for.
enum class Wanted : uint8_t { kAuto, kOwn, kCudnn };
inline constexpr EnumName<Wanted> kWantedNames[] = {
    {Wanted::kAuto, "auto"}, {Wanted::kOwn, "own"}, {Wanted::kCudnn, "cudnn"}};
constexpr std::span<const EnumName<Wanted>> names_of(Wanted) { return kWantedNames; }

/// The plans of a run's attention, made before its first step. A call that is not of the prepared shape is not served.
class PreparedAttention {
 public:
  /// Throws the planner's error.
  PreparedAttention(AttentionPlanner& planner, const AttentionCase& forward, const AttentionCase& backward);

  AttentionPlan& forward() { return *forward_; }
  AttentionPlan& backward() { return *backward_; }
  int64_t workspace_bytes() const;  ///< the most that a call needs
  /// The plan that serves the call, or null. To be run with arrays_of(args).
  AttentionPlan* plan_for(const AttentionForward& args);
  AttentionPlan* plan_for(const AttentionBackward& args);

 private:
  Library library_;
  AttentionCase forward_case_, backward_case_;
  std::unique_ptr<AttentionPlan> forward_, backward_;
};

/// Which attention a run has, and where that was decided. Stored with the run.
struct Choice {
  bool cudnn = false;
  Library library;              ///< of cuDNN; zeros where own was chosen without asking it
  int64_t workspace_bytes = 0;  ///< of cuDNN's
  std::string reason;           ///< why it is our own; empty for cuDNN's
  std::string line() const;     ///< for the log: "attention is cuDNN 9.19.0's, with a workspace of ..."
  bool operator==(const Choice&) const = default;
};

struct Decision {
  Choice choice;
  std::unique_ptr<PreparedAttention> prepared;  ///< null: our own
};

struct DecisionArgs {
  Wanted wanted = Wanted::kAuto;
  AttentionFacts facts;  ///< of the run's calls
  AttentionCase forward, backward;
  int64_t free_bytes = 0;  ///< of the device, for the workspace, when all else has its memory
  /// Both are called only where they are needed. The test compares plans with our own kernels (self_test); it returns
  /// how they differ, empty where they agree.
  std::function<std::unique_ptr<AttentionPlanner>()> make_planner;
  std::function<std::string(PreparedAttention&)> test;
};

/// cuDNN's where it is wanted or automatic and holds: the contract, the memory, the test. Where it does not hold,
/// `auto` is our own with the reason, and `cudnn` an input_error of "train.attention" with it.
Decision decide(const DecisionArgs& args);

/// What all ranks do, from the choices of each: cuDNN's if it is every rank's, by one version on one kind of device;
/// otherwise our own, with the reason of the first rank that says so.
Choice agreed(std::span<const Choice> choices);

/// {"attention":"cudnn","version":91900,"sm":90,"workspace":204...}
std::string to_json(const Choice& choice);
/// Damaged-data error of `where` for another text.
Choice choice_from_json(std::string_view text, std::string_view where);
/// Whether a stored choice may be kept by a run that finds `library`: own always, cuDNN's with the same version on the
/// same kind of device. Otherwise a run decides again, and says so.
bool may_keep(const Choice& stored, const Library& library);

}  // namespace ashlar::cudnn
