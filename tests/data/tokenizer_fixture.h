#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

using Ids = std::vector<int32_t>;

inline const std::filesystem::path kFixtures = std::filesystem::path(ASHLAR_SOURCE_DIR) / "tests/data/fixtures";

/// The tokenizer of a folder that has this tokenizer.json alone.
std::unique_ptr<FormTokenizer> tokenizer_of(const nlohmann::json& tokenizer_json);

}  // namespace ashlar::data
