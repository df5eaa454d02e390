#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/log.h"

namespace ashlar::launch {

/// The result of `ashlar train --from HF_DIR`: the path of the configuration that the import wrote, and overrides to be
/// placed before the user's overrides.
struct TrainFrom {
  std::string config;
  std::vector<std::string> overrides;
};

struct TrainFromArgs {
  std::filesystem::path hf_directory;
  std::vector<std::string> overrides;
  std::vector<std::string> ignored_keys;  ///< keys of config.json to ignore, as for `ashlar import`
};

/// Called by all ranks; only rank 0 sets `import`, and so imports the model. The checkpoint goes to RUN_DIR.import,
/// next to the run's directory RUN_DIR. RUN_DIR is run.dir of `overrides`, else runs/NAME, where NAME is the last
/// component of HF_DIR. If an earlier start has imported HF_DIR, its import is reused. Throws an input error if
/// RUN_DIR.import exists but is not a complete import of HF_DIR.
TrainFrom train_from(const TrainFromArgs& args, bool import, Log& log);

}  // namespace ashlar::launch
