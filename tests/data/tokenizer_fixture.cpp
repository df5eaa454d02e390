#include "tests/data/tokenizer_fixture.h"

#include <nlohmann/json.hpp>

namespace ashlar::data {

std::unique_ptr<FormTokenizer> tokenizer_of(const nlohmann::json& tokenizer_json) {
  return tokenizer_from_files({.shown = "here", .bytes = {{"tokenizer.json", tokenizer_json.dump()}}});
}

}  // namespace ashlar::data
