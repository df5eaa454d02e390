#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/read/batch_stream.h"
#include "launch/training/engine.h"
#include "launch/training/run_events.h"

namespace ashlar::training {

/// Validation result of one dataset.
///   Bits per byte of text compare models with different tokenizers: loss * tokens / (bytes * ln 2), where `bytes` are
/// those of the text that the valid targets stand for (data::TokenBytes). An end-of-document token has a loss but no
/// bytes.
struct SourceLoss {
  std::string path;
  double weight = 1;   ///< weight in the mixture
  double loss = 0;     ///< mean over its valid targets
  int64_t tokens = 0;  ///< number of valid targets
  int64_t bytes = 0;   ///< bytes of text of these targets

  std::optional<double> bits_per_byte() const;  ///< absent if the targets stand for no text
};

struct ValidationResult {
  std::vector<SourceLoss> sources;         ///< sources with valid targets, in the order of the mixture
  std::vector<UncountedSource> uncounted;  ///< sources with a validation part but no valid target
  bool mixture = false;                    ///< true for several datasets, even if only one has a validation part
  double loss = 0;                         ///< weighted mean over the sources
  int64_t tokens = 0;                      ///< number of valid targets of all sources
  int64_t bytes = 0;                       ///< bytes of text of these targets
  std::optional<double> bits_per_byte;     ///< weighted mean over the sources; absent if one source has none
};

/// The validation parts of the datasets of a run, each evaluated separately: one loss per dataset, and their weighted
/// mean.
class Validation {
 public:
  /// `datasets` must be separate readers (TokenDataset::reopened), since another thread reads the training data.
  /// `max_sequences` limits the sequences of each dataset (0: the whole validation part). A dataset with fewer than two
  /// validation tokens is left out and named in notes().
  Validation(std::vector<data::WeightedDataset> datasets, const data::StreamOptions& options, int64_t max_sequences);

  /// True if there is no validation data and so no val_loss.
  bool empty() const { return sources_.empty(); }
  /// One line per dataset that is left out, for the start of a run.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Number of calls of `stop` in `run`, on this rank.
  int64_t rounds(const mesh::Mesh& mesh) const;
  /// Called by all ranks; the result is the same on all. Returns nothing if `stop` (see evaluate) ended the validation.
  std::optional<ValidationResult> run(Engine& engine, const std::function<int64_t()>& stop = nullptr);

 private:
  struct Source {
    double weight;
    data::ValidationStream stream;
    std::shared_ptr<const data::TokenBytes> bytes;  ///< on ranks where counts_text() is true, from the first run on
  };
  void make_tables(const mesh::Mesh& mesh);
  std::vector<Source> sources_;
  std::vector<std::string> notes_;
  bool mixture_;
};

/// Sets result.loss and result.bits_per_byte to weighted means over the sources, result.tokens and result.bytes to
/// sums. Loss, tokens and bytes are 0 if no source has valid targets.
void combine(ValidationResult& result);

}  // namespace ashlar::training
