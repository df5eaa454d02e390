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

HfConfig read_golden(const std::string& folder, const nlohmann::json& changes) {
  return parse_hf_config(changed(golden_config(folder), changes).dump(), "config.json");
}
HfConfig read_golden(const std::string& folder) { return read_golden(folder, {}); }

HfConfig read_type(const char* model_type, nlohmann::json keys) {
  keys["model_type"] = model_type;
  return parse_hf_config(keys.dump(), "config.json");
}
HfConfig read_type(const char* model_type) { return read_type(model_type, {}); }

}  // namespace ashlar::hf::testing
