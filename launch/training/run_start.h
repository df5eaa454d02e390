#pragma once

#include <memory>
#include <optional>

#include "data/read/prefetcher.h"
#include "launch/training/metrics_file.h"
#include "launch/training/run.h"
#include "launch/training/saving.h"
#include "launch/training/validation.h"

namespace ashlar::training {

/// What the start of a run leaves to the other parts.
struct RunStart {
  Progress progress;  ///< where the run stands
  std::unique_ptr<data::Prefetcher> reader;
  std::optional<Validation> validation;
  std::unique_ptr<MetricsFile> metrics;   ///< rank 0's
  std::optional<StartsOver> starts_over;  ///< rank 0's
  int64_t validated_step = -1;            ///< of the last validation that metrics.jsonl has; -1: none
};

/// The start part of a trainer, after the device and the model are made (Run): loads the newest good checkpoint (else
/// run.init_from, else initial values), reserves memory for snapshots, opens the readers, and at last, when nothing can
/// fail any more, writes config.toml and opens metrics.jsonl. Takes the datasets of `args`. Called by all ranks.
RunStart start_run(Run& run, Saving& saving, TrainerArgs& args);

}  // namespace ashlar::training
