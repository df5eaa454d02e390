#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/read/prefetcher.h"
#include "launch/training/events_file.h"
#include "launch/training/log_file.h"
#include "launch/training/metrics_file.h"
#include "launch/training/run.h"
#include "launch/training/saving.h"
#include "launch/training/task_scores.h"
#include "launch/training/tensorboard_sink.h"
#include "launch/training/validation.h"

namespace ashlar::training {

/// Results of start_run, for the other parts of the trainer.
struct RunStart {
  Progress progress;      ///< progress of the run
  bool restored = false;  ///< the run continues from a checkpoint of its own
  std::string text;       ///< the text of start.txt
  std::unique_ptr<data::Prefetcher> reader;
  std::optional<Validation> validation;
  std::unique_ptr<MetricsFile> metrics;          ///< rank 0 only
  std::unique_ptr<TensorBoardSink> tensorboard;  ///< rank 0 only; null without log.tensorboard
  std::unique_ptr<EventsFile> events;            ///< rank 0 only
  std::unique_ptr<LogFile> log;                  ///< rank 0 only
  std::vector<std::string> changes;              ///< StartEvent::changes, on rank 0
  std::string plan;                              ///< StartEvent::plan, on rank 0
  std::optional<StartsOver> starts_over;         ///< rank 0 only
  std::unique_ptr<TaskEvaluation> tasks;         ///< null without train.eval_tasks
  int64_t tasks_step = -1;                       ///< step of the last evaluation on tasks in metrics.jsonl; -1: none
  int64_t validated_step = -1;                   ///< step of the last validation in metrics.jsonl; -1: none
};

/// The start part of a trainer, after device and model are created (Run). Loads the newest valid checkpoint, else
/// run.init_from, else initializes; reserves memory for snapshots; opens the readers. Only after all of this has
/// succeeded, writes config.toml and opens the files of the sinks. Moves the datasets out of `args`. Called by all
/// ranks.
RunStart start_run(Run& run, Saving& saving, TrainerArgs& args);

}  // namespace ashlar::training
