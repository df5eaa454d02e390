#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// Creates a tokenizer from the JSON that FormTokenizer::to_json writes.
std::unique_ptr<Tokenizer> tokenizer_from_files_json(const nlohmann::json& json);

}  // namespace ashlar::data
