#pragma once

#include "launch/hf/hf_config.h"
#include "launch/hf/json_reader.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

/// The keys that every class takes: token ids, which are kept; options of training, generation and bookkeeping, which
/// change no logit; and the few that would change them, which are refused.
void read_common_keys(JsonReader& reader, HfConfig& out);

}  // namespace ashlar::hf
