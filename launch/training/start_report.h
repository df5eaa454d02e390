#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/read/batch_stream.h"
#include "launch/config/run_config.h"
#include "launch/training/run.h"

namespace ashlar::training {

// What a run says of itself when it starts: a few lines in the log, everything else in `start.txt`.

/// The tokens of the datasets of a run.
struct DataFacts {
  int64_t datasets = 0, train_tokens = 0, validation_tokens = 0;
};
DataFacts facts_of(std::span<const data::WeightedDataset> datasets);

/// Returns the lines about model, data and run directory. (layout_picture describes the mesh.)
std::vector<std::string> start_lines(const config::RunConfig& config, const DataFacts& data);

/// Returns the text of `start.txt`: the derived values, each with its rule, and the table of parameters.
std::string start_text(const config::Resolved& resolved, const optim::OptimizerOptions& options);

/// (rank 0) Logs the lines and the memory that is used before the first step. With log.verbose, a new run first logs
/// `text` (start_text).
void log_start(Run& run, const DataFacts& data, const std::string& text, bool new_run);

}  // namespace ashlar::training
