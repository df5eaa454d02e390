#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// The tokenizer from the output of FormTokenizer::to_json.
std::unique_ptr<Tokenizer> tokenizer_from_files_json(const nlohmann::json& json);

}  // namespace ashlar::data
