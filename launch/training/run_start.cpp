#include "launch/training/run_start.h"

#include <filesystem>

#include "core/io/atomic_file.h"
#include "data/read/batch_stream.h"
#include "launch/training/run_identity.h"
#include "launch/training/start_report.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

namespace {

checkpoint::LoadArgs load_args(Run& run, checkpoint::CheckpointReader& reader, bool resumes) {
  ExpertBuffers buffers;
  comm::try_on_all_ranks(run.ranks, [&] {
    buffers = expert_buffers(reader.path(), reader.manifest(), run.config.model, resumes);
    if (!run.first_rank) return;
    for (const std::string& note : buffers.notes) run.log.info(note);
  });
  return {.ranks = run.ranks,
          .reader = reader,
          .store = run.engine->store(),
          .optimizer = run.engine->optimizer(),
          .optional_buffers = std::move(buffers.optional)};
}

/// Compares `found`, the step of the checkpoint that was loaded (nothing if there was none), with the step recorded in
/// committed.json. If nothing was loaded although a step is recorded, throws. If the recorded step is later than
/// `found` and its checkpoint does not exist, warns. Then records `found`.
void compare_with_committed(const Run& run, std::optional<int64_t> found) {
  if (!found) return run.directory.check_none_lost();
  const auto before = run.directory.committed();
  const auto there = [&](int64_t step) {
    std::error_code error;
    return std::filesystem::exists(checkpoint::checkpoints_dir(run.directory.path()) / checkpoint::directory_name(step),
                                   error);
  };
  // If the committed checkpoint exists but is damaged, loading has already reported it.
  if (before && *before > *found && !there(*before)) {
    run.log.warn(
        to_line(NewestCheckpointMissed{.run_dir = run.directory.path(), .committed_step = *before, .step = *found}));
  }
  if (before != *found) run.directory.record_committed(*found);
}

/// Restores the newest valid checkpoint of the run directory. Returns nothing if there is none.
/// Appends what differs from that checkpoint to `changes`.
std::optional<Progress> restore(Run& run, Saving& saving, std::vector<std::string>& changes) {
  for (const auto& path : checkpoint::remove_leftovers(run.directory.path(), run.log, run.ranks))
    run.log.info(str_cat("removed ", path.string(), ", left by a killed process"));
  checkpoint::TrainingState state;
  const auto load = [&](checkpoint::CheckpointReader& reader) {
    // The new configuration is compared with the one in the checkpoint, not with config.toml.
    comm::try_on_all_ranks(run.ranks, [&] {
      const Continuation continuation =
          check_continuation(reader.path(), reader.manifest(), {.config = run.config, .data = saving.data()});
      if (!run.first_rank) return;
      continuation.say(run.log);
      changes = continuation.warnings;
      changes.insert(changes.end(), continuation.notes.begin(), continuation.notes.end());
    });
    state = checkpoint::load_training(run.ctx(), load_args(run, reader, true));
    saving.keep(reader.metadata());
  };
  const auto found =
      checkpoint::load_newest_good({.path = run.directory.path(), .log = run.log, .ranks = run.ranks, .load = load});
  comm::try_on_first_rank(run.ranks,
                          [&] { compare_with_committed(run, found ? std::optional(found->step) : std::nullopt); });
  if (!found) return std::nullopt;
  run.engine->start_param_sync();
  saving.loaded(*found);
  run.log.info(str_cat("continuing from ", found->path.string(), " at step ", state.step));
  return Progress{.step = state.step, .tokens = state.tokens};
}

void initialize(Run& run, Saving& saving) {
  if (!run.config.run.init_from) {
    run.engine->initialize();
    run.log.info(str_cat("initial weights from seed ", run.config.run.seed));
    return;
  }
  const auto load = [&](checkpoint::CheckpointReader& reader) {
    checkpoint::load_weights(run.ctx(), load_args(run, reader, false));
    io::Metadata metadata = reader.metadata();
    metadata.erase(Tuning::kMetadataKey);  // the choices of algorithms belong to the run that wrote the checkpoint
    saving.keep(std::move(metadata));
  };
  const std::filesystem::path from =
      checkpoint::load_resolved({.path = *run.config.run.init_from, .log = run.log, .ranks = run.ranks, .load = load});
  run.engine->start_param_sync();
  run.log.info(str_cat("weights from ", from.string(), ", a fresh optimizer"));
}

/// Reserves memory for experts that get more than their even share of the tokens.
void reserve_activations(const Run& run, int64_t bytes) {
  Allocator& activations = run.device->backend().allocator(MemoryKind::kActivations);
  const int64_t more = bytes - activations.used_bytes();
  if (more <= 0) return;
  try {
    activations.reserve(more);
  } catch (const Error& error) {
    throw Error(error.code(), Error::FullText{str_cat(
                                  error.what(), "; this is room for experts with ", run.config.mesh.expert_reserve,
                                  " times their even share of the tokens: a lower mesh.expert_reserve asks for less")});
  }
  run.log.info(str_cat("reserved ", human_bytes(bytes), " for activations, room for experts with ",
                       run.config.mesh.expert_reserve, " times their even share of the tokens"));
}

void open_readers(Run& run, std::vector<data::WeightedDataset> datasets, RunStart& start) {
  const config::RunConfig& c = run.config;
  const data::StreamOptions options{
      .sequence_length = c.train.sequence_length,
      .micro_batch = c.train.micro_batch,
      .dp_index = run.mesh->index(kSampleAxes),
      .dp_size = run.mesh->size(kSampleAxes),
      .documents = {.mask = c.data.document_mask, .restart_positions = c.data.restart_positions},
      .vocab_size = c.model.vocab_size,
      .rows_multiple = run.mesh->size(Axis::kTensor)};
  std::vector<data::WeightedDataset> again;  // for validation, since another thread reads the training data
  for (const auto& d : datasets) again.push_back({d.dataset->reopened(), d.weight});
  start.validation.emplace(std::move(again), options, c.train.eval_sequences);
  auto stream = std::make_unique<data::TrainStream>(std::move(datasets), options, static_cast<uint64_t>(c.run.seed),
                                                    start.progress.step * c.train.global_batch);
  run.memory.add("data", stream->max_resident_bytes());
  start.reader = std::make_unique<data::Prefetcher>(std::move(stream));
}

/// With --restart, first sets the old run directory aside. Then writes config.toml and opens the files of the sinks.
/// Called by rank 0.
void write_directory(Run& run, const Saving& saving, const TrainerArgs& args, RunStart& start) {
  const std::filesystem::path aside = args.restart ? run.directory.set_aside() : "";
  if (!aside.empty()) run.log.info(str_cat("the earlier run is now ", aside.string()));
  run.directory.check_owned();
  // A run that has no step left keeps the configuration of the steps that it did.
  const bool trains = start.progress.step < run.config.train.steps;
  if (trains || !std::filesystem::exists(run.directory.config()))
    io::write_file_atomically(run.directory.config(), saving.config_toml());
  io::write_file_atomically(run.directory.start(), start.text);
  const auto check_owned = [&run] { run.directory.check_owned(); };
  start.metrics = std::make_unique<MetricsFile>(run.directory.metrics(), start.progress.step, run.log, check_owned);
  start.log = std::make_unique<LogFile>(run.directory.log(), run.log, check_owned);
  start.events = std::make_unique<EventsFile>(run.directory.events(), run.log, check_owned);
  if (run.config.log.tensorboard)
    start.tensorboard = std::make_unique<TensorBoardSink>(TensorBoardSink::Args{.dir = run.directory.path(),
                                                                                .completed_steps = start.progress.step,
                                                                                .config_toml = saving.config_toml(),
                                                                                .log = run.log});
  if (!start.restored && start.metrics->rows_set_aside() > 0)
    start.starts_over = {.run_dir = run.directory.path(), .rows = start.metrics->rows_set_aside()};
  start.validated_step = start.metrics->last_validation_step();
  start.tasks_step = start.metrics->last_tasks_step();
}

}  // namespace

RunStart start_run(Run& run, Saving& saving, TrainerArgs& args) {
  RunStart start;
  run.recorder().enter(watch::Phase::kLoading);
  const std::optional<Progress> restored = args.restart ? std::nullopt : restore(run, saving, start.changes);
  start.restored = restored.has_value();
  start.text = start_text(args.resolved, run.engine->optimizer()->options()) + args.plan.text;
  start.plan = std::move(args.plan.json);
  if (restored) start.progress = *restored;
  if (run.tuning && !args.restart) run.tuning->reuse(restored ? saving.kept(Tuning::kMetadataKey) : "");
  if (!restored) initialize(run, saving);
  const int64_t every = run.config.checkpoint.every;
  if (every > 0 && every <= run.config.train.steps)
    comm::try_on_all_ranks(run.ranks, [&] { run.memory.add("snapshot", saving.reserve()); });
  comm::try_on_all_ranks(run.ranks, [&] { reserve_activations(run, args.reserved_activations); });
  run.recorder().enter(watch::Phase::kStarting);
  comm::try_on_all_ranks(run.ranks, [&] { open_readers(run, std::move(args.datasets), start); });
  comm::try_on_first_rank(run.ranks, [&] { write_directory(run, saving, args, start); });
  start.tasks = std::move(args.tasks);
  return start;
}

}  // namespace ashlar::training
