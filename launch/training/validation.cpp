#include "launch/training/validation.h"

#include <map>
#include <numbers>

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
    sources_.push_back(
        {d.weight, data::ValidationStream(std::move(d.dataset), options, max_sequences), /*bytes=*/nullptr});
  }
  const char* const then = sources_.empty() ? "no val_loss will be reported" : "it is not part of val_loss";
  for (const std::string& path : without) notes_.push_back(str_cat(path, " has no validation part: ", then));
}

std::optional<double> SourceLoss::bits_per_byte() const {
  if (bytes == 0) return std::nullopt;
  return loss * static_cast<double>(tokens) / (static_cast<double>(bytes) * std::numbers::ln2);
}

void Validation::make_tables(const mesh::Mesh& mesh) {
  if (!counts_text(mesh)) return;
  std::map<std::string, std::shared_ptr<const data::TokenBytes>> of_tokenizer;  // a mixture has one tokenizer
  for (Source& source : sources_) {
    if (source.bytes) continue;
    const data::TokenDataset& dataset = source.stream.dataset();
    auto& table = of_tokenizer[dataset.manifest().tokenizer_hash];
    if (!table) table = std::make_shared<data::TokenBytes>(dataset.tokenizer());
    source.bytes = table;
  }
}

int64_t Validation::rounds(const mesh::Mesh& mesh) const {
  const int64_t at_once = batches_per_round(mesh);
  int64_t rounds = 0;
  for (const Source& source : sources_) rounds += (source.stream.num_batches() + at_once - 1) / at_once + 1;
  return rounds;
}

std::optional<ValidationResult> Validation::run(Engine& engine, const std::function<int64_t()>& stop) {
  ValidationResult result{.mixture = mixture_};
  make_tables(engine.mesh());
  for (Source& source : sources_) {
    source.stream.rewind();
    const std::optional<Evaluation> evaluated = evaluate(engine, source.stream, source.bytes.get(), stop);
    if (!evaluated) return std::nullopt;
    const LossStats& stats = evaluated->losses;
    const std::string& path = source.stream.dataset().directory();
    if (stats.valid == 0) {
      result.uncounted.push_back({.path = path, .sequences = source.stream.num_sequences()});
      continue;
    }
    result.sources.push_back({.path = path,
                              .weight = source.weight,
                              .loss = stats.loss / static_cast<double>(stats.valid),
                              .tokens = stats.valid,
                              .bytes = evaluated->text_bytes});
  }
  combine(result);
  return result;
}

void combine(ValidationResult& result) {
  double weights = 0;
  result.loss = 0;
  result.tokens = result.bytes = 0;
  double bits = 0;
  bool all_have_text = !result.sources.empty();
  for (const SourceLoss& s : result.sources) weights += s.weight;
  for (const SourceLoss& s : result.sources) {
    result.loss += s.loss * (s.weight / weights);
    result.tokens += s.tokens;
    result.bytes += s.bytes;
    const std::optional<double> of_source = s.bits_per_byte();
    all_have_text = all_have_text && of_source;
    bits += of_source.value_or(0) * (s.weight / weights);
  }
  result.bits_per_byte = all_have_text ? std::optional(bits) : std::nullopt;
}

}  // namespace ashlar::training
