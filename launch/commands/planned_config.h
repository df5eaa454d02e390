#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/plan/planner.h"

namespace ashlar::launch {

/// The configuration that `ashlar plan` plans, read again for each choice of overrides and ranks.
class PlannedConfig {
 public:
  /// `path`: a TOML file or a run directory. Notes about a moved run go to `log`.
  PlannedConfig(std::string path, std::vector<std::string> overrides, Log& log);

  /// Number of ranks that the configuration's mesh names; 1 if it names none.
  int64_t ranks_of_mesh() const;
  /// Resolves the configuration for so many ranks with more overrides. Throws ConfigError, or an input error for keys
  /// that a training step needs.
  config::RunConfig resolved(const plan::Choice& choice) const;
  /// Bytes of tokens that a rank of this run holds; 0 for datasets that cannot be opened here.
  static int64_t data_bytes(const config::RunConfig& run);

 private:
  config::Resolved resolve(const plan::Choice& choice, config::Purpose purpose) const;

  const std::string path_;
  const std::vector<std::string> overrides_;
  Log& log_;
};

}  // namespace ashlar::launch
