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

/// Functions of a backend that AttentionChoice needs.
struct ChoiceOptions {
  AttentionKernels wanted = AttentionKernels::kAuto;
  std::string device;  ///< device model, as in TunedChoices
  /// Throws an input_error if there is no cuDNN.
  std::function<std::unique_ptr<AttentionPlanner>()> make_planner;
  /// Memory of the device that is free, in bytes.
  std::function<int64_t()> free_bytes;
  /// Compares a plan with our own kernels (self_test). Returns how they differ; empty if they agree.
  std::function<std::string(AttentionPlan&, const AttentionCase&)> test;
  /// Reserves a workspace of `bytes` bytes for calls on the stream, so that no step allocates.
  std::function<void(Stream&, int64_t bytes)> reserve;
};

/// Chooses cuDNN or our own kernels for each attention case of a run, before its first step; the choices are saved with
/// the run. They are the section "attention" of TunedChoices: from case (text_of) to "cudnn", or to "own: " and the
/// reason. Calls that `refusal` rejects are not listed: our own kernels compute them. If the user demands cuDNN, each
/// reason against it is an input_error of "train.attention". Errors of memory and of the device do not select our own
/// kernels; they are passed on.
class AttentionChoice final : public PreparingTuner {
 public:
  /// Looks for cuDNN.
  explicit AttentionChoice(ChoiceOptions options);

  /// Returns the cuDNN plan for the call, to be run with arrays_of(args); null: our own kernels compute it. Until
  /// `report` is called, records cases that have no choice yet.
  AttentionPlan* serve(const AttentionForward& args, Stream& stream);
  AttentionPlan* serve(const AttentionBackward& args, Stream& stream);
  /// The largest workspace of the plans in use.
  int64_t workspace_bytes() const;

  TunedChoices met() const override;
  /// Chooses cuDNN if it has a deterministic kernel whose workspace fits and whose results agree with our own kernels.
  TunedChoices measure(const TunedChoices& questions) override;
  void use(const TunedChoices& choices) override;
  /// Makes the plans and reserves their workspace.
  TunedChoices prepare() override;
  /// Returns one line: "attention is that of cuDNN 9.19.0, with a workspace of 204 MB", or why our own kernels are
  /// used.
  std::vector<std::string> report() override;

 private:
  /// A case of a call that was made, and the stream of its calls.
  struct Met {
    AttentionCase asked;
    std::string question;
    Stream* stream;
    std::unique_ptr<AttentionPlan> plan;  ///< null: not made yet, or our own kernels
  };

  template <typename Args>
  AttentionPlan* serve_call(const Args& args, Stream& stream);
  std::string library_text() const;
  std::string answer_to(const AttentionCase& asked);
  /// Returns "own: " and the reason; throws the reason if the user demands cuDNN.
  std::string own(const std::string& reason) const;
  /// Returns why a workspace does not fit into memory in addition to what is reserved; empty if it fits.
  std::string no_room(int64_t bytes, const char* what) const;

  ChoiceOptions options_;
  std::unique_ptr<AttentionPlanner> planner_;  ///< null if there is no cuDNN, or none that can be used
  std::string absent_;                         ///< why planner_ is null
  std::optional<Library> library_;
  bool settled_ = false;
  std::vector<Met> met_;
  std::set<std::string> unserved_;              ///< why calls that were made cannot use cuDNN
  std::map<std::string, std::string> answers_;  ///< choice by case, also of cases that have not been called
  int64_t reserved_bytes_ = 0;
};

}  // namespace ashlar::cudnn
