#include "launch/commands/planned_config.h"

#include <algorithm>
#include <utility>

#include "data/read/batch_stream.h"
#include "kernels/make_backend.h"
#include "launch/commands/timed_steps.h"
#include "launch/commands/train_run.h"
#include "launch/training/run_identity.h"

namespace ashlar::launch {

PlannedConfig::PlannedConfig(std::string path, std::vector<std::string> overrides, Log& log)
    : path_(std::move(path)), overrides_(std::move(overrides)), log_(log) {}

config::Resolved PlannedConfig::resolve(const plan::Choice& choice, config::Purpose purpose) const {
  std::vector<std::string> overrides = overrides_;
  overrides.insert(overrides.end(), choice.overrides.begin(), choice.overrides.end());
  config::RawConfig raw = read_run_config(path_, overrides, choice.ranks, log_);
  training::apply_start_model(raw);
  config::Facts facts{.ranks = choice.ranks,
                      .local_ranks = choice.ranks,
                      .hardware_threads = kernels::usable_cores(),
                      .purpose = purpose};
  std::string reason = "data.path is not given";
  for (const auto& source : raw.data_sources()) {
    if (raw.given("vocab.size") || facts.dataset_vocab_size) break;
    try {
      facts.dataset_vocab_size = data::TokenDataset(source.path).tokenizer().vocab_size();
    } catch (const Error& error) {
      if (error.code() != ExitCode::kInput) throw;
      reason = str_cat(source.path, " is not a dataset");
    }
  }
  if (!raw.given("vocab.size") && !facts.dataset_vocab_size)
    raw.add_error(str_cat("vocab.size is needed, and ", reason, "; set vocab.size, e.g. vocab.size=50257, or build ",
                          "the dataset first"));
  return config::resolve(raw, facts);
}

int64_t PlannedConfig::ranks_of_mesh() const {
  const config::MeshSection mesh = resolve({}, config::Purpose::kModel).config.mesh;
  return mesh.tensor * mesh.pipeline * mesh.data;
}

config::RunConfig PlannedConfig::resolved(const plan::Choice& choice) const {
  config::RunConfig c = resolve(choice, config::Purpose::kStep).config;
  complete_step("plan", path_, c);
  c.train.global_batch = std::max(c.train.global_batch, c.train.micro_batch * c.mesh.data);
  return c;
}

int64_t PlannedConfig::data_bytes(const config::RunConfig& c) {
  int64_t bytes = 0;
  try {
    for (const config::DataSource& source : c.data.sources)
      bytes += data::most_resident_bytes(data::TokenDataset(source.path), c.train.sequence_length);
    return bytes;
  } catch (const Error& error) {
    if (error.code() != ExitCode::kInput) throw;
    return 0;
  }
}

}  // namespace ashlar::launch
