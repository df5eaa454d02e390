#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ashlar::quickstart {

/// The licence texts that every Debian system carries, links left out (they would be read twice); empty elsewhere.
std::vector<std::string> licence_texts();

/// `ashlar ARGUMENTS` through the shell, which must succeed: a test failure shows its output otherwise. Returns what it
/// printed.
std::string ashlar(const std::string& arguments);

/// The rows of RUN_DIR/metrics.jsonl.
std::vector<nlohmann::json> metrics(const std::filesystem::path& run_dir);

/// The number behind `name` in the report of `ashlar data inspect --entropy`.
double entropy(const std::string& report, const std::string& name);

}  // namespace ashlar::quickstart
