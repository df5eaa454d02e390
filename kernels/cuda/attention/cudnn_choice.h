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
  /// Makes a planner. Throws an input_error if there is no cuDNN.
  std::function<std::unique_ptr<AttentionPlanner>()> make_planner;
  /// Returns the number of free bytes of device memory.
  std::function<int64_t()> free_bytes;
  /// Compares a plan with our own kernels (self_test). Returns how they differ; empty if they agree.
  std::function<std::string(AttentionPlan&, const AttentionCase&)> test;
  /// Reserves a workspace of `bytes` bytes for calls on the stream, so that no step allocates.
  std::function<void(Stream&, int64_t bytes)> reserve;
};

/// Chooses cuDNN or our own kernels for each attention case of a run, before the first step of the run; the choices are
/// saved with the run. Section "attention" of TunedChoices maps each case (text_of) to "cudnn", or to "own: " followed
/// by the reason, e.g. too little memory for cuDNN's workspace. Calls that `refusal` rejects are not listed: our own
/// kernels compute them. If the user demands cuDNN (train.attention = "cudnn"), a reason against cuDNN is thrown as an
/// input_error. A failure of cuDNN or of the device (resource_error) does not select our own kernels; it is thrown to
/// the caller.
class AttentionChoice final : public PreparingTuner {
 public:
  /// Loads cuDNN. If no usable cuDNN is found and the user demands cuDNN, throws an input_error. If the user does not
  /// demand it, stores the reason.
  explicit AttentionChoice(ChoiceOptions options);

  /// Returns the cuDNN plan for the call, to be run with arrays_of(args), or null if our own kernels compute the call.
  /// Records the case of each call that `refusal` does not reject, until `report` is called.
  AttentionPlan* serve(const AttentionForward& args, Stream& stream);
  AttentionPlan* serve(const AttentionBackward& args, Stream& stream);
  /// Returns the size in bytes of the largest workspace of the plans in use.
  int64_t workspace_bytes() const;

  TunedChoices met() const override;
  /// Chooses cuDNN if it has a deterministic kernel whose workspace fits and whose results agree with our own kernels.
  TunedChoices measure(const TunedChoices& questions) override;
  void use(const TunedChoices& choices) override;
  /// Makes the plans of all cases that chose cuDNN and reserves their workspace. Returns the cases for which this
  /// fails, with the choice "own: " and the reason.
  TunedChoices prepare() override;
  /// Returns lines for the log: "attention uses cuDNN 9.19.0, with a workspace of 204 MB" if cuDNN is used, and one
  /// line for each reason why our own kernels are used. After this call `serve` records no new cases.
  std::vector<std::string> report() override;

 private:
  /// A case of which the run has made calls, and the stream of the first call.
  struct Met {
    AttentionCase asked;
    std::string question;
    Stream* stream;
    std::unique_ptr<AttentionPlan> plan;  ///< null if it is not made yet or our own kernels are chosen
  };

  template <typename Args>
  AttentionPlan* serve_call(const Args& args, Stream& stream);
  std::string library_text() const;
  std::string answer_to(const AttentionCase& asked);
  std::string_view choice_of(const Met& met) const;  ///< the active choice; empty if there is none
  /// Returns "own: " and the reason; throws the reason if the user demands cuDNN.
  std::string own(const std::string& reason) const;
  /// Returns why a workspace does not fit into memory in addition to what is reserved; empty if it fits.
  std::string no_room(int64_t bytes, const char* what) const;

  ChoiceOptions options_;
  std::unique_ptr<AttentionPlanner> planner_;  ///< null if there is no usable cuDNN
  std::string absent_;                         ///< why planner_ is null
  std::optional<Library> library_;
  bool settled_ = false;
  std::vector<Met> met_;
  std::set<std::string> unserved_;              ///< reasons why calls of the run cannot use cuDNN
  std::map<std::string, std::string> answers_;  ///< case -> choice; also has cases that were not called yet
  int64_t reserved_bytes_ = 0;
};

}  // namespace ashlar::cudnn
