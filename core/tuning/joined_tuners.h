#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/tuning/tuner.h"

namespace ashlar {

/// Returns, by section name, the reason for each section whose choices in `made` cannot be used for the device and
/// libraries of `here`. If the devices differ, the reason for every section of `here` is "device: X, made on Y", with
/// X the device of `here`. Otherwise each section whose libraries differ has a reason such as "gemm: cublasLt 13.1.0,
/// made with cublasLt 12.8.4", and sections that only `made` or only `here` has are ignored. Empty if all choices can
/// be used.
std::map<std::string, std::string> reasons_against(const TunedChoices& made, const TunedChoices& here);

/// A tuner whose choices must be prepared before the first step, since they need memory and must be supported on every
/// rank.
class PreparingTuner : public Tuner {
 public:
  /// Prepares the active choices for the operations of the first step on this device. Returns replacements for the
  /// choices that this device cannot use. All ranks of the run must then use the replacements.
  virtual TunedChoices prepare() = 0;
  /// Returns lines for the log about the active choices. Throws an input_error if a choice is not the one that the
  /// user's configuration demands.
  virtual std::vector<std::string> report() = 0;
  /// Returns a line for each operation measured since the last call, for benchmarks: what there was to choose from. A
  /// run does not log them, since a model has dozens.
  virtual std::vector<std::string> details() { return {}; }
};

/// Makes several tuners of one device appear as one. Each tuner has sections of its own. The device name is taken from
/// the first tuner.
class JoinedTuners final : public PreparingTuner {
 public:
  /// `parts` must not be empty, and the tuners must outlive this object.
  explicit JoinedTuners(std::vector<Tuner*> parts);
  TunedChoices met() const override;
  TunedChoices measure(const TunedChoices& questions) override;
  void use(const TunedChoices& choices) override;
  TunedChoices prepare() override;  ///< calls prepare() on every part that is a PreparingTuner and merges the results
  std::vector<std::string> report() override;   ///< concatenates the lines of the parts that are a PreparingTuner
  std::vector<std::string> details() override;  ///< likewise

 private:
  std::vector<std::string> lines_of(const std::function<std::vector<std::string>(PreparingTuner& part)>& lines) const;

  std::vector<Tuner*> parts_;
};

}  // namespace ashlar
