#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/read/batch_stream.h"
#include "launch/training/engine.h"
#include "launch/training/run_events.h"

namespace ashlar::training {

/// What the validation part of one dataset gave.
struct SourceLoss {
  std::string path;
  double weight = 1;   ///< as given in the mixture
  double loss = 0;     ///< mean over its counted targets
  int64_t tokens = 0;  ///< counted targets
};

struct ValidationResult {
  std::vector<SourceLoss> sources;         ///< those with counted targets, in the order of the mixture
  std::vector<UncountedSource> uncounted;  ///< those with a validation part, but no target in it that counts
  bool mixture = false;                    ///< of several datasets, even when only one has a validation part
  double loss = 0;                         ///< mean of the sources by weight
  int64_t tokens = 0;                      ///< of all sources
};

/// The validation parts of the datasets of a run, each read on its own: one loss a dataset, and their mean by weight.
class Validation {
 public:
  /// Takes datasets of its own (TokenDataset::reopened). `max_sequences` holds for each (0: the whole part). A dataset
  /// with fewer than two validation tokens takes no part; remarks() says so.
  Validation(std::vector<data::WeightedDataset> datasets, const data::StreamOptions& options, int64_t max_sequences);

  /// Nothing to validate on: no val_loss.
  bool empty() const { return sources_.empty(); }
  /// One line for each dataset that takes no part, for the start of a run.
  const std::vector<std::string>& remarks() const { return remarks_; }

  /// Called by all ranks, with the same result. Nothing when `stop` (see evaluate) ended it.
  std::optional<ValidationResult> run(Engine& engine, const std::function<int64_t()>& stop = nullptr);

 private:
  struct Source {
    double weight;
    data::ValidationStream stream;
  };
  std::vector<Source> sources_;
  std::vector<std::string> remarks_;
  bool mixture_;
};

/// The mean of the losses by weight, and the sum of the tokens, filled in; without a source that counts both are 0.
void combine(ValidationResult& result);

}  // namespace ashlar::training
