// config.json of each folder in the spelling of the other major version of transformers: the same model.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/io/posix_file.h"
#include "tests/reference/golden_folder.h"

namespace ashlar::testing {
namespace {

using nlohmann::json;

/// What transformers 4 calls the rotary keys at top level, of a class.
struct RotaryNames {
  const char* base = "rope_theta";
  const char* fraction = "partial_rotary_factor";
};

RotaryNames rotary_names(const json& config) {
  if (config.value("model_type", "") == "gpt_neox") return {"rotary_emb_base", "rotary_pct"};
  return {};
}

void rename(json& j, const char* from, const char* to) {
  if (!j.contains(from)) return;
  j[to] = j[from];
  j.erase(from);
}

/// From version 5: the dictionary of the rotary keys becomes keys at top level, and one of the scaling, if there is
/// any, under its older name.
void to_version_4(json& config) {
  json dict = config["rope_parameters"];
  config.erase("rope_parameters");
  const RotaryNames names = rotary_names(config);
  const auto lift = [&](const char* key, const char* name) {
    if (dict.contains(key)) config[name] = dict[key];
    dict.erase(key);
  };
  lift("rope_theta", names.base);
  lift("partial_rotary_factor", names.fraction);
  const bool scaled = dict.value("rope_type", "default") != "default";
  if (scaled) rename(dict, "rope_type", "type");
  config["rope_scaling"] = scaled ? dict : json(nullptr);
  rename(config, "dtype", "torch_dtype");
}

/// From version 4, the other way.
void to_version_5(json& config) {
  json dict = json::object();
  if (config.contains("rope_scaling") && config["rope_scaling"].is_object()) dict = config["rope_scaling"];
  config.erase("rope_scaling");
  rename(dict, "type", "rope_type");
  if (!dict.contains("rope_type")) dict["rope_type"] = "default";
  const RotaryNames names = rotary_names(config);
  for (const auto& [name, key] :
       {std::pair{names.base, "rope_theta"}, std::pair{names.fraction, "partial_rotary_factor"}}) {
    if (config.contains(name)) dict[key] = config[name];
    config.erase(name);
  }
  config["rope_parameters"] = dict;
  rename(config, "torch_dtype", "dtype");
}

bool has_dictionary(const json& config) {
  return config.contains("rope_parameters") && config["rope_parameters"].is_object();
}

/// Empty where there is one spelling: nothing rotates, or by a key of its own; or layers of several kinds, each with a
/// dictionary of its own (tests/hf/mixed_layers_test.cpp has their spellings).
std::optional<json> respelt(const json& config) {
  json other = config;
  const std::string type = config.value("model_type", "");
  if (type == "olmo3" || type == "gemma3_text" || type == "gemma4_text") return std::nullopt;
  if (has_dictionary(config)) {
    to_version_4(other);
  } else if (config.contains(rotary_names(config).base)) {
    to_version_5(other);
  } else {
    return std::nullopt;
  }
  return other;
}

hf::HfConfig parse(const json& config) { return hf::parse_hf_config(config.dump(), "config.json"); }

/// A folder of a class that is not read fails by tests of its own.
bool is_read(const json& config) {
  const json& classes = config.at("architectures");
  return hf::family_from_class(classes.at(0).get<std::string>()) != nullptr;
}

void expect_refused(const json& config, const std::string& word) {
  try {
    parse(config);
    ADD_FAILURE() << "was read: " << config.dump();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_NE(text.find(word), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(Spelling, OfTheOtherVersionIsTheSameModel) {
  int respelled = 0;
  for (const std::string& folder : folders_with(golden_root(), "config.json")) {
    SCOPED_TRACE(folder);
    const json config = json::parse(io::read_text_file(golden_root() / folder / "config.json"));
    const std::optional<json> other = respelt(config);
    if (!other || !is_read(config)) continue;
    ++respelled;
    const hf::HfConfig as_stored = parse(config), again = parse(*other);
    EXPECT_EQ(again.model, as_stored.model) << other->dump();
    EXPECT_EQ(again.extras, as_stored.extras);
    // Both at once, as an export has them.
    json both = config;
    both.update(*other);
    EXPECT_EQ(parse(both).model, as_stored.model) << both.dump();
    // Which contradict each other in one value.
    json torn = both;
    const char* base = rotary_names(config).base;
    if (torn.contains(base) && has_dictionary(torn) && torn["rope_parameters"].contains("rope_theta")) {
      torn[base] = 2 * torn[base].get<double>();
      expect_refused(torn, base);
    }
  }
  EXPECT_GT(respelled, 0);
}

}  // namespace
}  // namespace ashlar::testing
