#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/device/stream.h"
#include "core/tuning/joined_tuners.h"
#include "kernels/cuda/attention/cudnn_attention.h"

namespace ashlar::cudnn {

/// What cuDNN's attention needs from a backend.
struct ChoiceOptions {
  AttentionKernels wanted = AttentionKernels::kAuto;
  std::string device;  ///< as TunedChoices names it
  /// May throw an input_error: there is no cuDNN.
  std::function<std::unique_ptr<AttentionPlanner>()> make_planner;
  /// Memory of the device that is free, in bytes.
  std::function<int64_t()> free_bytes;
  /// Compares a plan with our own kernels (self_test): how they differ, empty where they agree.
  std::function<std::string(AttentionPlan&, const AttentionCase&)> test;
  /// Takes a workspace of so many bytes for calls on the stream, so that no step allocates.
  std::function<void(Stream&, int64_t bytes)> reserve;
};

/// Which calls of a run's attention cuDNN serves: decided before its first step, for the cases that its steps have, and
/// kept with the run. The section "attention" of TunedChoices: a question is a case (text_of), its answer "cudnn" or
/// "own: " and the reason. Calls outside the contract are no question: they are our own.
/// Where the user demands cuDNN, each reason against it is an input_error of "train.attention". Errors of memory and of
/// the device are no reasons; they are passed on.
class AttentionChoice final : public PreparingTuner {
 public:
  /// Looks for cuDNN.
  explicit AttentionChoice(ChoiceOptions options);

  /// The plan that serves the call, to be run with arrays_of(args); null: our own kernels do. Until `report` was
  /// called, a call that has no answer is noted.
  AttentionPlan* serve(const AttentionForward& args, Stream& stream);
  AttentionPlan* serve(const AttentionBackward& args, Stream& stream);
  /// Of the plans in use, the most that one needs.
  int64_t workspace_bytes() const;

  TunedChoices met() const override;
  /// cuDNN's where it has a deterministic kernel whose workspace has room, and which computes what ours do.
  TunedChoices measure(const TunedChoices& questions) override;
  void use(const TunedChoices& choices) override;
  /// Makes the plans, and takes their workspace.
  TunedChoices prepare() override;
  /// One line: "attention is that of cuDNN 9.19.0, with a workspace of 204 MB", or whose it is and why.
  std::vector<std::string> report() override;

 private:
  /// A case that came by, and the stream of its calls.
  struct Met {
    AttentionCase asked;
    std::string question;
    Stream* stream;
    std::unique_ptr<AttentionPlan> plan;  ///< null: not made yet, or our own
  };

  template <typename Args>
  AttentionPlan* serve_call(const Args& args, Stream& stream);
  std::string library_text() const;
  std::string answer_to(const AttentionCase& asked);
  /// "own: " and the reason; throws it where cuDNN is demanded.
  std::string own(const std::string& reason) const;
  /// Why there is no room for a workspace, beside what is reserved; empty where there is.
  std::string no_room(int64_t bytes, const char* what) const;

  ChoiceOptions options_;
  std::unique_ptr<AttentionPlanner> planner_;  ///< null where there is no cuDNN, or one that serves nothing
  std::string absent_;                         ///< why
  std::optional<Library> library_;
  bool settled_ = false;
  std::vector<Met> met_;
  std::set<std::string> unserved_;              ///< why calls that came by are outside the contract
  std::map<std::string, std::string> answers_;  ///< in use, also of cases that have not come by
  int64_t reserved_bytes_ = 0;
};

}  // namespace ashlar::cudnn
