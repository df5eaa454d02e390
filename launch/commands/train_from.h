#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/log.h"

namespace ashlar::launch {

/// What `ashlar train --from HF_DIR` trains with: the configuration that the import wrote, and what comes before the
/// user's own overrides.
struct TrainFrom {
  std::string config;
  std::vector<std::string> overrides;
};

struct TrainFromArgs {
  std::filesystem::path hf_directory;
  std::vector<std::string> overrides;
  std::vector<std::string> ignored_keys;  ///< of its config.json, as for `ashlar import`
};

/// Called by all ranks; rank 0 imports (`import` true). The checkpoint goes to RUN_DIR.import, beside the run's
/// directory (run.dir of `overrides`, else runs/NAME of the Hugging Face directory), once: what an earlier start has
/// imported from the same directory is used again. Input error when that place holds another model's import, or what is
/// none.
TrainFrom train_from(const TrainFromArgs& args, bool import, Log& log);

}  // namespace ashlar::launch
