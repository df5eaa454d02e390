#include "launch/commands/subcommands.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "data/read/batch_stream.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/task_setup.h"
#include "launch/commands/train_from.h"
#include "launch/commands/train_run.h"
#include "launch/inference/sample_text.h"
#include "launch/plan/report.h"
#include "launch/training/datasets.h"
#include "launch/training/run_directory.h"
#include "launch/training/run_identity.h"
#include "launch/training/trainer.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {

const char* const kTrainHelp = R"(ashlar train CONFIG [section.key=value ...] [--restart]
ashlar train RUN_DIR [section.key=value ...] [--restart]
ashlar train --from HF_DIR data.path=DATASET [section.key=value ...]

Trains the model of a TOML file. A run owns one directory (run.dir): config.toml, metrics.jsonl (a row a step),
train.log (the lines of the terminal), events.jsonl (starts, saves, warnings, errors), event files of TensorBoard and
checkpoints/.
When it holds a checkpoint, the run resumes from the newest valid one, bitwise as if never interrupted.
Its data must have the same tokens, at any path (data.allow_change permits changes). With run.init_from, a new run
takes the weights and the model of another run; model keys that differ are refused (run.init_change).

Values derived from train.steps do not change when a run resumes with more steps: set schedule.warmup_steps
and schedule.decay_steps for other values. RUN_DIR, also after a rename, is resumed with its own config.toml
on any number of ranks.

  section.key=value   overrides a key of the file; `ashlar explain all` lists every key
  --from HF_DIR       starts from a Hugging Face model: imports it to RUN_DIR.import, beside the run (run.dir,
                      default runs/NAME), and trains with the config.toml of the import and these overrides
  --ignore-key KEY    with --from: accepts an unknown key of config.json that has no effect; repeatable
  --restart           start over: an existing run directory is renamed to DIR.old-1 when the new run is ready

SIGTERM, SIGHUP, SIGINT and SIGUSR1 save a checkpoint after the step (or the validation batch) and exit with 76, 76,
77 and 75; the same command then resumes. A second signal exits at once; before the first step, the first one does too.
An ignored SIGHUP (nohup) has no effect.
)";

namespace {

// Before the first step, a time without progress counts as a hang only if it is at least this long, even if
// run.hang_after is shorter: no step time is known yet, and the ranks of a busy machine start one after the other.
constexpr double kStartSeconds = 60;

void check_same_configuration(comm::ControlPlane& ranks, const config::RunConfig& config) {
  const auto mine = static_cast<int64_t>(config::config_hash(config));
  if (comm::min_of(ranks, mine) == comm::max_of(ranks, mine)) return;
  const std::vector<uint64_t> hashes = comm::gather_values(ranks, config::config_hash(config));
  for (size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] == hashes[0]) continue;
    throw comm::AllRanksError(
        ExitCode::kInput, "config",
        absl::StrFormat(
            "rank %d has a configuration of hash %016x, expected the hash of rank 0, %016x; give every node the "
            "same files, overrides and datasets",
            rank, hashes[rank], hashes[0]));
  }
}

struct TrainArguments {
  std::string file;
  std::vector<std::string> overrides;
  bool restart = false;
};

/// With --from, rank 0 imports the model. Configurations are read only after all ranks have parsed their words.
TrainArguments parse(std::span<const std::string> words, bool first_rank, Log& log) {
  Arguments arguments("train", words);
  TrainArguments a{.restart = arguments.flag("--restart")};
  const std::optional<std::string> from = arguments.option("--from");
  std::vector<std::string> ignored_keys;
  while (const auto key = arguments.option("--ignore-key")) ignored_keys.push_back(*key);
  if (!from && !ignored_keys.empty())
    throw input_error("train", "--ignore-key ", printable(ignored_keys[0]),
                      ": expected only with --from HF_DIR; remove --ignore-key");
  std::vector<std::string> files = arguments.positionals();
  a.overrides = take_overrides(files);
  if (files.size() != (from ? 0 : 1))
    throw input_error("train",
                      from ? "expected no configuration file with --from, got "
                           : "expected one configuration file or run directory, got ",
                      files.size(), "; usage: ashlar train ",
                      from ? "--from HF_DIR data.path=DATASET" : "CONFIG|RUN_DIR", " [section.key=value ...]");
  if (from) {
    const TrainFrom begun =
        train_from({.hf_directory = *from, .overrides = a.overrides, .ignored_keys = ignored_keys}, first_rank, log);
    a.overrides.insert(a.overrides.begin(), begun.overrides.begin(), begun.overrides.end());
    files.push_back(begun.config);
  }
  a.file = files[0];
  return a;
}

/// The checkpoint that supplies the values of keys that the user does not set: the run's newest checkpoint (`own`) or,
/// for a new run, the checkpoint from which it starts (`start`).
struct Origins {
  std::optional<training::Origin> own, start;
};

Origins find_origins(const config::RawConfig& raw, bool restart, comm::ControlPlane& ranks) {
  Origins found;
  if (!restart) found.own = training::find_origin(raw.run_dir(), ranks);
  if (!found.own && raw.init_from()) found.start = training::find_origin(*raw.init_from(), ranks);
  return found;
}

/// Takes values for the keys that the user has not set from the checkpoint from which the run continues or starts.
/// Returns the keys that got a value.
std::vector<config::DerivedValue> apply_stored_values(config::RawConfig& raw, const Origins& from) {
  const std::optional<std::string> init_from = raw.init_from();
  std::vector<config::DerivedValue> applied;
  if (from.own && init_from)
    applied =
        config::apply_checkpoint_model(raw, from.own->config.model, from.own->path.string(), config::Differing::kStays);
  if (from.start)
    applied = config::apply_checkpoint_model(raw, from.start->config.model, from.start->path.string(),
                                             config::Differing::kError);
  if (from.own) {
    const auto kept = config::apply_run_values(raw, from.own->config, from.own->path.string());
    applied.insert(applied.end(), kept.begin(), kept.end());
  }
  if (init_from && !from.own && !from.start)
    throw input_error(
        "config", "run.init_from = ", *init_from,
        ": expected a checkpoint, an import or a run directory with checkpoints, got none; correct the path");
  return applied;
}

/// Opens the datasets. An input error of a dataset is added to the errors of the configuration, so that all of them are
/// reported together; any other error is thrown.
std::vector<data::WeightedDataset> open_datasets(config::RawConfig& raw, const training::SharedManifests& manifests) {
  std::vector<data::WeightedDataset> datasets;
  for (const auto& source : raw.data_sources()) {
    try {
      datasets.push_back({manifests.open(source.path), source.weight});
    } catch (const Error& error) {
      if (error.code() != ExitCode::kInput) throw;
      raw.add_error(error.what());
    }
  }
  if (const std::string problem = training::mixture_problem(datasets); !problem.empty()) raw.add_error(problem);
  return datasets;
}

struct ResolvedRun {
  config::Resolved resolved;
  std::vector<data::WeightedDataset> datasets;
  io::Metadata metadata;  ///< of the checkpoint that it starts or continues from
};

ResolvedRun resolve_run(config::RawConfig& raw, const Origins& from, const training::SharedManifests& manifests,
                        const Session& session) {
  config::Facts facts{.ranks = session.bootstrap.control().size(),
                      .local_ranks = session.bootstrap.local_size(),
                      .hardware_threads = session.cores.machine};
  const std::vector<config::DerivedValue> applied = apply_stored_values(raw, from);
  ResolvedRun run;
  for (const auto& origin : {from.start, from.own})
    if (origin) run.metadata = origin->manifest.metadata;
  // Assigned after the construction of `run`: if an expression in an initializer list throws, g++ 12 destroys the
  // members that were initialized before it twice.
  run.datasets = open_datasets(raw, manifests);
  if (!run.datasets.empty()) facts.dataset_vocab_size = run.datasets.front().dataset->tokenizer().vocab_size();
  const std::vector<checkpoint::DataRecord> records = training::data_records(run.datasets);
  training::Continuation continuation;
  if (from.start) continuation = training::check_start(*from.start, raw, records);
  run.resolved = config::resolve(raw, facts);
  run.resolved.derived.insert(run.resolved.derived.end(), applied.begin(), applied.end());
  continuation.say(session.log);
  const config::RunConfig& c = run.resolved.config;
  data::check_train_data(run.datasets, {.sequence_length = c.train.sequence_length,
                                        .micro_batch = c.train.micro_batch,
                                        .vocab_size = c.model.vocab_size});
  // Only errors are reported here; notes about the run's own checkpoint are printed when it is loaded.
  if (from.own) training::check_continuation(*from.own, {.config = c, .data = records});
  return run;
}

/// Returns the function that generates the text of log.sample; empty without that key.
std::function<std::string(training::Engine&)> sampler_of(const ResolvedRun& run, comm::ControlPlane& ranks) {
  const config::LogSection& log = run.resolved.config.log;
  if (!log.sample) return {};
  const std::shared_ptr<const data::Tokenizer> tokenizer =
      data::tokenizer_from_json(run.datasets.front().dataset->tokenizer().to_json());
  comm::try_on_all_ranks(ranks, [&] { inference::prompt_ids(*tokenizer, *log.sample); });
  const inference::SampleOptions options{.prompt = *log.sample,
                                         .new_tokens = log.sample_tokens,
                                         .seed = static_cast<uint64_t>(run.resolved.config.run.seed)};
  return [tokenizer, options](training::Engine& engine) { return inference::sample_text(engine, *tokenizer, options); };
}

/// (all ranks) Reads the tasks of train.eval_tasks; null without.
std::unique_ptr<training::TaskEvaluation> tasks_of_run(const ResolvedRun& run, Session& session) {
  const config::RunConfig& c = run.resolved.config;
  if (c.train.eval_tasks.empty()) return nullptr;
  std::unique_ptr<tasks::Evaluation> evaluation;
  comm::try_on_all_ranks(session.bootstrap.control(), [&] {
    const data::Tokenizer& tokenizer = run.datasets.front().dataset->tokenizer();
    evaluation = open_tasks(
        {.options = {.names = c.train.eval_tasks, .data = c.train.eval_tasks_data, .limit = c.train.eval_tasks_limit},
         .tokenizer = tokenizer,
         .metadata = run.metadata,
         .max_length = c.train.sequence_length,
         .tokens = c.train.micro_batch * c.train.sequence_length});
  });
  check_same_texts(session.bootstrap.control(), *evaluation);
  session.log.info(str_cat("tasks: ", evaluation->requests(), " texts of ", comma_list(c.train.eval_tasks)));
  for (const std::string& note : evaluation->notes()) session.log.info(note);
  return evaluation;
}

/// Plans memory and time of the run before anything is allocated, and logs both. A plan that cannot be made stops no
/// run.
training::RunPlan plan_run(const ResolvedRun& resolved, Session& session) {
  const config::RunConfig& c = resolved.resolved.config;
  try {
    int64_t data_bytes = 0;
    for (const data::WeightedDataset& d : resolved.datasets)
      data_bytes += data::most_resident_bytes(*d.dataset, c.train.sequence_length);
    const plan::Target target = plan::target_of_run(c, session.bootstrap.local_size());
    const plan::Planned planned = plan::plan_of(
        {.run = c, .device = target.kind, .data_bytes = data_bytes, .program_bytes = training::resident_bytes()},
        target);
    for (const std::string& line : plan::start_lines(planned, target)) session.log.info(line);
    return {.text = str_cat("plan: ", absl::StrJoin(plan::report(planned, target, 0), "\n"), "\n"),
            .json = plan::to_json(planned, target, 0).dump()};
  } catch (const std::exception& error) {
    session.log.warn(str_cat("the plan of this run could not be made: ", error.what()));
    return {};
  }
}

ExitCode train(ResolvedRun& resolved, bool restart, training::MemoryLedger memory, Session& session) {
  const config::RunSection& run = resolved.resolved.config.run;
  training::RunPlan planned;
  if (session.bootstrap.control().rank() == 0) planned = plan_run(resolved, session);
  watch::HangOptions hang{.after_seconds = run.hang_after == 0 ? 0 : std::max(run.hang_after, kStartSeconds),
                          .starting = true,
                          .stall_seconds = run.stall_after,
                          .stop = run.hang_action == config::HangAction::kStop};
  session.watch->watchdog().watch_hangs(hang);
  int64_t reserved = 0;
  comm::try_on_all_ranks(session.bootstrap.control(), [&] {
    reserved = plan::activations_to_reserve(resolved.resolved.config, session.bootstrap.control().rank());
  });
  std::function<std::string(training::Engine&)> sample = sampler_of(resolved, session.bootstrap.control());
  std::unique_ptr<training::TaskEvaluation> on_tasks = tasks_of_run(resolved, session);
  training::Trainer trainer({.resolved = resolved.resolved,
                             .datasets = std::move(resolved.datasets),
                             .bootstrap = session.bootstrap,
                             .signals = session.signals,
                             .memory = std::move(memory),
                             .log = session.log,
                             .status = &session.status,
                             .watch = *session.watch,
                             .cores = session.cores.machine,
                             .sample = std::move(sample),
                             .tasks = std::move(on_tasks),
                             .plan = std::move(planned),
                             .restart = restart,
                             .reserved_activations = reserved});
  hang.after_seconds = run.hang_after;
  hang.starting = false;
  session.watch->watchdog().watch_hangs(hang);
  return trainer.run();
}

}  // namespace

int run_train_command(Words words, Session& session) {
  training::MemoryLedger memory;
  comm::ControlPlane& ranks = session.bootstrap.control();
  TrainArguments a;
  comm::try_on_all_ranks(ranks, [&] { a = parse(words, ranks.rank() == 0, session.log); });
  std::optional<config::RawConfig> raw;
  comm::try_on_all_ranks(ranks, [&] {
    raw = read_run_config(a.file, a.overrides, ranks.size(), session.log);
    if (a.restart && ranks.rank() == 0) training::RunDirectory(raw->run_dir()).check_can_be_set_aside();
  });
  const Origins from = find_origins(*raw, a.restart, ranks);
  std::vector<std::string> paths;
  for (const auto& source : raw->data_sources()) paths.push_back(source.path);
  const training::SharedManifests manifests(session.bootstrap, paths);
  ResolvedRun run;
  comm::try_on_all_ranks(ranks, [&] { run = resolve_run(*raw, from, manifests, session); });
  check_same_configuration(ranks, run.resolved.config);
  training::check_shards(ranks, run.datasets);
  training::log_dataset_warnings(ranks, run.datasets, session.log);
  return static_cast<int>(train(run, a.restart, std::move(memory), session));
}

}  // namespace ashlar::launch
