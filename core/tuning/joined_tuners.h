#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/tuning/tuner.h"

namespace ashlar {

/// Returns the reasons why sections of `made` cannot be used for `here`, by section: "device: X, made on Y" for all of
/// them, or "gemm: cublasLt 13.1.0, made with cublasLt 12.8.4". Empty if they can. A section missing on one side is not
/// a reason.
std::map<std::string, std::string> reasons_against(const TunedChoices& made, const TunedChoices& here);

/// A tuner whose choices need preparation: memory, or support on every rank.
class PreparingTuner : public Tuner {
 public:
  /// Prepares the active choices for the operations of the first step on this device. Returns replacements for the
  /// choices that this device cannot use; all ranks that work together use the replacements.
  virtual TunedChoices prepare() = 0;
  /// Returns lines for the log about the active choices. Throws an input_error if they are not what the user demands.
  virtual std::vector<std::string> report() = 0;
};

/// Joins several tuners of one device. Each has its own sections. The device name is that of the first.
class JoinedTuners final : public PreparingTuner {
 public:
  /// Must not be empty; the tuners must outlive this object.
  explicit JoinedTuners(std::vector<Tuner*> parts);
  TunedChoices met() const override;
  TunedChoices measure(const TunedChoices& questions) override;
  void use(const TunedChoices& choices) override;
  TunedChoices prepare() override;  ///< calls prepare() on every part that is a PreparingTuner and merges the results
  std::vector<std::string> report() override;  ///< concatenates the lines of the same parts

 private:
  std::vector<Tuner*> parts_;
};

}  // namespace ashlar
