#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/tuning/tuner.h"

namespace ashlar {

/// Why sections made there mean nothing here, by section: "device: X, made on Y", which is all of them, or "gemm:
/// cublasLt 13.1.0, made with cublasLt 12.8.4". Empty where they do. A section that one of the two lacks is no reason.
std::map<std::string, std::string> reasons_against(const TunedChoices& made, const TunedChoices& here);

/// A tuner whose answers need more than to be known: memory, or that every rank can do them.
class PreparingTuner : public Tuner {
 public:
  /// What remains to be done before the first step, with the answers in use, for what this device's work has asked.
  /// Returns the questions whose answers this device cannot do, with what it does instead; ranks that work together all
  /// take that.
  virtual TunedChoices prepare() = 0;
  /// Lines for the log about the answers in use. Throws an input_error where they are not what the user demands.
  virtual std::vector<std::string> report() = 0;
};

/// Tuners of one device as one. Each has sections of its own; the device is what the first calls it.
class JoinedTuners final : public PreparingTuner {
 public:
  /// Not empty; they must outlive this object.
  explicit JoinedTuners(std::vector<Tuner*> parts);
  TunedChoices met() const override;
  TunedChoices measure(const TunedChoices& questions) override;
  void use(const TunedChoices& choices) override;
  TunedChoices prepare() override;             ///< of those that prepare
  std::vector<std::string> report() override;  ///< likewise

 private:
  std::vector<Tuner*> parts_;
};

}  // namespace ashlar
