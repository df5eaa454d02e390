#pragma once

#include "launch/hf/hf_config.h"
#include "launch/hf/json_reader.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

/// A key that holds a token id, a list of them, or null.
std::vector<int64_t> token_ids(JsonReader& reader, const char* key);

/// The keys that every class takes: token ids, which are kept, and the few that would change a logit in any class,
/// which are refused. Keys that change no logit: neutral_keys.h.
void read_common_keys(JsonReader& reader, HfConfig& out);

}  // namespace ashlar::hf
