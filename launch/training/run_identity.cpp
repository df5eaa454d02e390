#include "launch/training/run_identity.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "launch/training/lr_schedule.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/ranking.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"
#include "parallel/model/experts.h"

namespace ashlar::training {

namespace fs = std::filesystem;

namespace {

// Prefix of the token digest of a dataset in the old format. Such a digest equals no digest of the new format.
constexpr std::string_view kOldTokens = "old:";

/// Returns the checkpoint at `path`, or the newest readable one if `path` is a run directory: its path and manifest.
std::optional<std::pair<fs::path, checkpoint::Manifest>> look(const fs::path& given) {
  std::error_code error;
  if (given.empty()) return std::nullopt;
  const fs::path path = checkpoint::resolve_best(given);
  if (fs::exists(path / checkpoint::kManifestFile, error))
    return std::pair(path, checkpoint::CheckpointReader(path).manifest());
  std::vector<checkpoint::Found> found = checkpoint::list(path);
  if (found.empty() && path.filename() == "checkpoints") found = checkpoint::list(path.parent_path());
  for (auto at = found.rbegin(); at != found.rend(); ++at) {
    if (!fs::exists(at->path / checkpoint::kManifestFile, error)) continue;  // loading skips it with a warning
    try {
      return std::pair(at->path, checkpoint::CheckpointReader(at->path).manifest());
    } catch (const Error& problem) {
      if (problem.code() != ExitCode::kDamagedData) throw;  // damaged: look at an older one, as loading does
    }
  }
  return std::nullopt;
}

config::RunConfig config_of(const fs::path& path, const checkpoint::Manifest& manifest) {
  return config::stored_config(manifest.config_toml, (path / checkpoint::kManifestFile).string());
}

double total_weight(const std::vector<config::DataSource>& sources) {
  double total = 0;
  for (const config::DataSource& s : sources) total += s.weight;
  return total;
}

std::string brief(const std::string& digest) { return digest.substr(0, 16); }

/// Compares the data sources of a run with those recorded in a checkpoint. `changes` describes each difference; the
/// caller adds how to fix it.
class DataComparison {
 public:
  DataComparison(const std::vector<config::DataSource>& then, const std::vector<config::DataSource>& now)
      : then_(then), now_(now) {}

  void compare(std::span<const checkpoint::DataRecord> before, std::span<const checkpoint::DataRecord> after) {
    if (before.size() != after.size()) {
      changes.push_back(str_cat("data.path: ", count(after.size()), ", expected ", before.size(), ", as in the run"));
      return;
    }
    const auto alike = [](const checkpoint::DataRecord& then, const checkpoint::DataRecord& now) {
      return same_tokenizer(then.tokenizer, now) && then.tokens == now.tokens;
    };
    const bool same = std::equal(before.begin(), before.end(), after.begin(), alike);
    if (!same && std::is_permutation(before.begin(), before.end(), after.begin(), after.end(), alike)) {
      changes.push_back("data.path: expected the sources in the order of the run, got a different order");
      return;
    }
    for (size_t i = 0; i < after.size(); ++i) compare_source(i, before[i], after[i]);
    compare_weights();
  }

  /// For a checkpoint that records only the tokenizer of its first source.
  void compare_tokenizer(const std::string& before, const checkpoint::DataRecord& after) {
    if (!same_tokenizer(before, after))
      changes.push_back(
          str_cat(name(0), ": the tokenizer differs (", brief(after.tokenizer), ", expected ", brief(before), ")"));
  }
  void compare_weights() {
    if (then_.size() != now_.size()) return;
    const double all_then = total_weight(then_), all_now = total_weight(now_);
    for (size_t i = 0; i < now_.size(); ++i) {
      const double was = then_[i].weight / all_then, is = now_[i].weight / all_now;
      if (std::abs(is - was) <= 1e-12 * was) continue;
      changes.push_back(str_cat(name(i), ": its share of the mixture is ", is, ", expected ", was));
    }
  }

  std::vector<std::string> changes;
  bool unknown_tokens = false;  ///< true if one token digest has the old format and the other the new format

 private:
  /// `before` may be a fingerprint of an older release, which hashed the whole tokenizer file.
  static bool same_tokenizer(const std::string& before, const checkpoint::DataRecord& after) {
    return before == after.tokenizer || (!after.old_tokenizer.empty() && before == after.old_tokenizer);
  }
  static std::string count(size_t n) { return n == 1 ? "1 source" : str_cat(n, " sources"); }
  std::string name(size_t i) const {
    return str_cat("data.path", now_.size() == 1 ? "" : str_cat("[", i, "]"), " = ", now_[i].path);
  }

  void compare_source(size_t i, const checkpoint::DataRecord& before, const checkpoint::DataRecord& after) {
    const bool tokenizer = same_tokenizer(before.tokenizer, after);
    const bool comparable = before.tokens.starts_with(kOldTokens) == after.tokens.starts_with(kOldTokens);
    const bool tokens = !comparable || before.tokens == after.tokens;
    unknown_tokens = unknown_tokens || (tokenizer && !comparable);
    if (tokenizer && tokens) return;
    const std::string_view what = tokenizer ? "the tokens" : "tokenizer and tokens";
    changes.push_back(str_cat(name(i), ": ", what, " differ from those of the run (",
                              brief(tokenizer ? after.tokens : after.tokenizer), ", expected ",
                              brief(tokenizer ? before.tokens : before.tokenizer), ")"));
  }

  const std::vector<config::DataSource>&then_, &now_;
};

}  // namespace

void Continuation::say(Log& log) const {
  for (const std::string& text : warnings) log.warn(text);
  for (const std::string& text : notes) log.info(text);
}

std::optional<Origin> find_origin(const fs::path& path, comm::ControlPlane& ranks) {
  std::string name, text;
  comm::try_on_first_rank(ranks, [&] {
    const auto found = look(path);
    if (!found) return;
    name = found->first.string();
    text = checkpoint::part_text({.state = found->second.state,
                                  .config_toml = found->second.config_toml,
                                  .tokenizer_json = found->second.tokenizer_json,
                                  .metadata = found->second.metadata,
                                  .data = found->second.data});
  });
  name = comm::broadcast_text(ranks, name, 0);
  text = comm::broadcast_text(ranks, text, 0);
  if (name.empty()) return std::nullopt;
  Origin origin{.path = name, .manifest = checkpoint::parse_part(text)};
  comm::try_on_all_ranks(ranks, [&] { origin.config = config_of(origin.path, origin.manifest); });
  return origin;
}

std::optional<Origin> find_origin(const fs::path& path) {
  const auto found = look(path);
  if (!found) return std::nullopt;
  return Origin{.path = found->first, .manifest = found->second, .config = config_of(found->first, found->second)};
}

std::vector<config::DerivedValue> apply_start_model(config::RawConfig& raw) {
  const std::optional<std::string> init_from = raw.init_from();
  const std::optional<Origin> start = init_from ? find_origin(*init_from) : std::nullopt;
  if (!start) return {};
  return config::apply_checkpoint_model(raw, start->config.model, start->path.string(), config::Differing::kError);
}

std::vector<checkpoint::DataRecord> data_records(std::span<const data::WeightedDataset> datasets) {
  std::vector<checkpoint::DataRecord> records;
  for (const data::WeightedDataset& d : datasets) {
    const data::Fingerprint fingerprint = d.dataset->fingerprint();
    records.push_back({.tokenizer = fingerprint.tokenizer,
                       .tokens = fingerprint.tokens,
                       .old_tokenizer = data::old_tokenizer_fingerprint(d.dataset->manifest().tokenizer_json)});
  }
  return records;
}

Continuation check_continuation(const fs::path& path, const checkpoint::Manifest& manifest, const StartedRun& run) {
  Origin origin;  // no initializer list: if config_of throws, g++ 12 would destroy .manifest twice
  origin.path = path;
  origin.manifest = {.state = manifest.state, .tokenizer_json = manifest.tokenizer_json, .data = manifest.data};
  origin.config = config_of(path, manifest);
  return check_continuation(origin, run);
}

Continuation check_continuation(const Origin& origin, const StartedRun& run) {
  Continuation result;
  std::vector<std::string> errors;
  try {
    for (const auto& change : config::check_resume(origin.config, run.config))
      result.notes.push_back(
          str_cat("changed since the checkpoint: ", change.key, " was ", change.before, ", is ", change.after));
  } catch (const config::ConfigError& error) {
    errors = error.errors();
  }
  const std::optional<checkpoint::TrainingState>& state = origin.manifest.state;
  if (const auto change = schedule_at_new_steps(origin.config, run.config, state ? state->step : 0))
    result.notes.push_back(to_line(*change));
  DataComparison data(origin.config.data.sources, run.config.data.sources);
  const checkpoint::Manifest& then = origin.manifest;
  if (!then.data.empty()) {
    data.compare(then.data, run.data);
  } else if (!then.tokenizer_json.empty()) {
    data.compare_tokenizer(data::tokenizer_fingerprint(then.tokenizer_json), run.data.front());
    data.compare_weights();
  }
  if (then.data.empty() || data.unknown_tokens)
    result.warnings.push_back(str_cat(origin.path.string(),
                                      then.data.empty()
                                          ? " has an older format, which does not record the tokens of its data"
                                          : " and the data have different format versions",
                                      ": cannot check that data.path holds the data of the run"));
  for (const std::string& change : data.changes) {
    if (run.config.data.allow_change)
      result.notes.push_back(str_cat("changed since the checkpoint, as data.allow_change permits: ", change));
    else
      errors.push_back(str_cat(change,
                               "; restore the data, set another run.dir to begin a new run, or set "
                               "data.allow_change = true to continue with the changed data"));
  }
  if (!errors.empty()) throw config::ConfigError(errors);
  return result;
}

ExpertBuffers expert_buffers(const model::ModelConfig& stored, const model::ModelConfig& wanted, bool resumes) {
  const auto has_bias = [](const model::ModelConfig& m) { return m.moe.experts > 0 && m.moe.selection_bias; };
  const auto has_counts = [](const model::ModelConfig& m) {
    return m.moe.experts > 0 && m.moe.balance == model::Balance::kPrevious;
  };
  ExpertBuffers buffers;
  if (has_bias(stored) != has_bias(wanted)) {
    buffers.optional.emplace_back(model::kSelectionBiasName);
    buffers.notes.emplace_back(has_bias(wanted) ? "the checkpoint has no selection bias of experts: it begins at 0"
                                                : "the selection bias of experts is left out: tokens choose others");
  }
  if (resumes && has_counts(stored) != has_counts(wanted)) {
    buffers.optional.emplace_back(model::kPreviousCountsName);
    if (has_counts(wanted))
      buffers.notes.emplace_back(
          "the checkpoint has no counts of choices, which moe.balance = \"previous\" uses: the next step has no "
          "balance loss");
  }
  return buffers;
}

ExpertBuffers expert_buffers(const fs::path& path, const checkpoint::Manifest& manifest,
                             const model::ModelConfig& wanted, bool resumes) {
  return expert_buffers(config_of(path, manifest).model, wanted, resumes);
}

Continuation check_start(const Origin& origin, const config::RawConfig& raw,
                         std::span<const checkpoint::DataRecord> data) {
  Continuation result;
  if (data.empty()) return result;
  if (origin.manifest.tokenizer_json.empty()) {
    result.notes.push_back(
        str_cat(origin.path.string(),
                " was imported without a tokenizer: cannot check that data.path was built with its tokenizer"));
    return result;
  }
  const std::vector<config::DataSource> sources = raw.data_sources();
  DataComparison comparison(origin.config.data.sources, sources);
  comparison.compare_tokenizer(data::tokenizer_fingerprint(origin.manifest.tokenizer_json), data.front());
  if (comparison.changes.empty()) return result;
  const std::string& change = comparison.changes.front();
  if (!raw.allow_change())
    throw config::ConfigError({str_cat(change, " from the tokenizer of run.init_from = ", origin.path.string(),
                                       "; build the dataset with that tokenizer, or set data.allow_change = true to "
                                       "train although its token ids have other meanings")});
  result.notes.push_back(str_cat("as data.allow_change permits: ", change));
  return result;
}

std::string mixture_problem(std::span<const data::WeightedDataset> datasets) {
  for (const data::WeightedDataset& d : datasets) {
    const data::Tokenizer &first = datasets.front().dataset->tokenizer(), &other = d.dataset->tokenizer();
    if (!data::same_tokenizer(first, other))
      return str_cat("expected sources with one tokenizer, got ", first.identity(), " (", first.hash(), ") in ",
                     datasets.front().dataset->directory(), " and ", other.identity(), " (", other.hash(), ") in ",
                     d.dataset->directory(), "; build both with the same tokenizer");
  }
  return "";
}

}  // namespace ashlar::training
