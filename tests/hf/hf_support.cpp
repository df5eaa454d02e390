#include "tests/hf/hf_support.h"

#include <nlohmann/json.hpp>

namespace ashlar::hf::testing {

nlohmann::json golden_config(const std::string& folder) {
  return nlohmann::json::parse(slurp(golden_dir(folder) / "config.json"));
}

nlohmann::json changed(nlohmann::json config, const nlohmann::json& changes) {
  for (const auto& [key, value] : changes.items()) {
    if (key[0] == '-') {
      config.erase(key.substr(1));
    } else {
      config[key] = value;
    }
  }
  return config;
}

}  // namespace ashlar::hf::testing
