#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/log.h"

namespace ashlar::launch {

/// The result of `ashlar train --from HF_DIR`: the configuration that the import wrote, and overrides that precede the
/// user's.
struct TrainFrom {
  std::string config;
  std::vector<std::string> overrides;
};

struct TrainFromArgs {
  std::filesystem::path hf_directory;
  std::vector<std::string> overrides;
  std::vector<std::string> ignored_keys;  ///< keys of its config.json, as for `ashlar import`
};

/// Called by all ranks; rank 0 imports (`import` true). The checkpoint goes to RUN_DIR.import, next to the run's
/// directory (run.dir of `overrides`, else runs/NAME of the Hugging Face directory). If an earlier start has imported
/// the same directory, its import is reused. Input error when RUN_DIR.import holds the import of another model, or
/// anything else.
TrainFrom train_from(const TrainFromArgs& args, bool import, Log& log);

}  // namespace ashlar::launch
