#pragma once

#include "launch/hf/hf_config.h"
#include "launch/hf/json_reader.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

/// A key that holds a token id, a list of them, or null.
std::vector<int64_t> token_ids(JsonReader& reader, const char* key);

/// Reads the keys that every class has. Token ids are kept. The few keys that would change a logit in any class are
/// refused. neutral_keys.h lists the keys that change no logit.
void read_common_keys(JsonReader& reader, HfConfig& out);

}  // namespace ashlar::hf
