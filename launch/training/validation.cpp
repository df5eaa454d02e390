#include "launch/training/validation.h"

#include "launch/training/evaluation.h"

namespace ashlar::training {

Validation::Validation(std::vector<data::WeightedDataset> datasets, const data::StreamOptions& options,
                       int64_t max_sequences)
    : mixture_(datasets.size() > 1) {
  std::vector<std::string> without;
  for (data::WeightedDataset& d : datasets) {
    if (d.dataset->tokens(data::Part::kValidation) < 2) {
      without.push_back(d.dataset->directory());
      continue;
    }
    sources_.push_back({d.weight, data::ValidationStream(std::move(d.dataset), options, max_sequences)});
  }
  const char* const then = sources_.empty() ? "no val_loss will be reported" : "it is not part of val_loss";
  for (const std::string& path : without) notes_.push_back(str_cat(path, " has no validation part: ", then));
}

std::optional<ValidationResult> Validation::run(Engine& engine, const std::function<int64_t()>& stop) {
  ValidationResult result{.mixture = mixture_};
  for (Source& source : sources_) {
    source.stream.rewind();
    const std::optional<LossStats> stats = evaluate(engine, source.stream, stop);
    if (!stats) return std::nullopt;
    const std::string& path = source.stream.dataset().directory();
    if (stats->valid == 0) {
      result.uncounted.push_back({.path = path, .sequences = source.stream.num_sequences()});
      continue;
    }
    result.sources.push_back({.path = path,
                              .weight = source.weight,
                              .loss = stats->loss / static_cast<double>(stats->valid),
                              .tokens = stats->valid});
  }
  combine(result);
  return result;
}

void combine(ValidationResult& result) {
  double weights = 0;
  result.loss = 0;
  result.tokens = 0;
  for (const SourceLoss& s : result.sources) weights += s.weight;
  for (const SourceLoss& s : result.sources) {
    result.loss += s.loss * (s.weight / weights);
    result.tokens += s.tokens;
  }
}

}  // namespace ashlar::training
