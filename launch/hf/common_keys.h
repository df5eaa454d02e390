#pragma once

#include "launch/hf/hf_config.h"
#include "launch/hf/json_reader.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

/// Returns the token ids of a key, whose value may be one id, a list of ids, or null.
std::vector<int64_t> token_ids(JsonReader& reader, const char* key);

/// Reads the keys that every class has: stores the token ids in out.extras, and refuses the few keys that would change
/// a logit in any class, e.g. quantization_config. neutral_keys.h lists the keys that change no logit.
void read_common_keys(JsonReader& reader, HfConfig& out);

}  // namespace ashlar::hf
